// Package listing reads the rows of a SQL view in order, a batch at a time.
package listing

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/statement"
)

// batchSize is how many rows a list reads at a time. Between two batches it holds no connection and no snapshot.
const batchSize = 2000

// planEachTime makes Postgres plan a statement for the actual arguments. A prepared statement may get a generic plan, but a
// rare search word and a common one need different plans.
const planEachTime = pgx.QueryExecModeCacheDescribe

// Query selects rows of a view and their order.
type Query struct {
	From  []pg.Source    // where the rows are found; a row of several sources is listed once. Empty: the view itself
	Where []pg.Condition // all must be true
	Sort  string         // a column that is never NULL; empty: id
	Desc  bool
	After *Position // only the rows after this position
	Limit int       // 0: no limit
	Skip  int
}

// Position is the place of a row in a sorted list.
type Position struct {
	Value any // of the sort column; nil if the list is sorted by id
	ID    int64
}

// View is a SQL view or table whose rows are read as V. It has a column id.
type View[V any] struct {
	columns *statement.Columns
	name    string
}

// New returns the View of the SQL view or table with this name. It panics if V has no member for the column id.
func New[V any](name string) *View[V] {
	return &View[V]{statement.ItemColumnsOf(reflect.TypeFor[V]()), pgx.Identifier{name}.Sanitize()}
}

// whereSQL returns a WHERE clause that joins the conditions with AND, or nothing if there are none.
func whereSQL(args *statement.Arguments, conditions []pg.Condition) string {
	if len(conditions) == 0 {
		return ""
	}
	written := make([]string, len(conditions))
	for i, c := range conditions {
		written[i] = args.Append(c.SQL, c.Args)
	}
	return " WHERE " + strings.Join(written, " AND ")
}

// selectIDs returns a SELECT of the rows of the query's sources. Each source gets its own subquery, because no single index
// serves several sources.
func (v *View[V]) selectIDs(args *statement.Arguments, q Query, columns string, suffix func() string) string {
	if len(q.From) == 0 {
		q.From = []pg.Source{{}}
	}
	parts := make([]string, len(q.From))
	for i, source := range q.From {
		from := v.name
		if source.View != "" {
			from = pgx.Identifier{source.View}.Sanitize()
		}
		parts[i] = "(SELECT " + columns + " FROM " + from + whereSQL(args, slices.Concat(q.Where, source.Where)) + suffix() + ")"
	}
	return strings.Join(parts, " UNION ")
}

// List reads the rows batch by batch. A row that exists during the whole call is yielded once. No snapshot is held while a
// slow caller reads. The next batch is read while the caller uses the current one.
func (v *View[V]) List(ctx context.Context, db pg.Querier, q Query) iter.Seq2[V, error] {
	return func(yield func(V, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		next := v.startBatch(ctx, db, q)
		defer func() {
			cancel()
			if next != nil {
				<-next
			}
		}()
		for next != nil {
			read := <-next
			next = nil
			if read.err != nil {
				yield(*new(V), read.err)
				return
			}
			if q.Limit -= len(read.rows); len(read.rows) == read.wanted && q.Limit != 0 {
				at := v.Position(&read.rows[len(read.rows)-1], q.Sort)
				q.After, q.Skip = &at, 0
				next = v.startBatch(ctx, db, q)
			}
			for i := range read.rows {
				if !yield(read.rows[i], nil) {
					return
				}
			}
		}
	}
}

// batchResult is the outcome of reading one batch. The list is complete when a batch has fewer rows than wanted.
type batchResult[V any] struct {
	rows   []V
	wanted int
	err    error
}

// startBatch reads a batch in the background. The channel gets exactly one value.
func (v *View[V]) startBatch(ctx context.Context, db pg.Querier, q Query) <-chan batchResult[V] {
	done := make(chan batchResult[V], 1)
	wanted := batchSize
	if q.Limit > 0 {
		wanted = min(wanted, q.Limit)
	}
	go func() {
		read := batchResult[V]{wanted: wanted}
		defer func() {
			if p := recover(); p != nil { // a panic in this goroutine would end the process
				read.err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
			done <- read
		}()
		read.rows, read.err = v.readBatch(ctx, db, q, wanted)
	}()
	return done
}

// readBatch reads at most wanted rows in one statement.
func (v *View[V]) readBatch(ctx context.Context, db pg.Querier, q Query, wanted int) ([]V, error) {
	var args statement.Arguments
	direction := ""
	if q.Desc {
		direction = " DESC"
	}
	columns, order := "id", " ORDER BY id"+direction
	if q.Sort != "" {
		sort := pgx.Identifier{q.Sort}.Sanitize()
		columns, order = "id, "+sort, " ORDER BY "+sort+direction+", id"+direction
	}
	all := len(q.From) == 0 && len(q.Where) == 0 && q.Sort == ""
	if q.After != nil {
		q.Where = append(slices.Clip(q.Where), q.afterCondition())
	}
	page := func(maxRows, skip int) string {
		return order + " LIMIT " + args.Add(maxRows) + " OFFSET " + args.Add(skip)
	}
	sql := "SELECT " + v.columns.List() + " FROM " + v.name
	if all {
		sql += whereSQL(&args, q.Where) + page(wanted, q.Skip)
	} else { // select the ids first: only the rows of this page need the view's joins
		found := v.selectIDs(&args, q, columns, func() string { return page(wanted+q.Skip, 0) })
		sql += " WHERE id = ANY (ARRAY(SELECT id FROM (" + found + ") found" + page(wanted, q.Skip) + "))"
		for _, c := range q.Where {
			if c.PerRow {
				sql += " AND " + args.Append(c.SQL, c.Args)
			}
		}
		sql += order
	}
	rows, err := db.Query(ctx, sql, append([]any{planEachTime}, args...)...)
	if err != nil {
		return nil, err
	}
	return statement.Collect[V](v.columns, rows)
}

// afterCondition returns the condition for rows behind q.After.
func (q Query) afterCondition() pg.Condition {
	sign := " > "
	if q.Desc {
		sign = " < "
	}
	if q.Sort == "" {
		return pg.Condition{SQL: "id" + sign + "$1", Args: []any{q.After.ID}}
	}
	return pg.Condition{SQL: "(" + pgx.Identifier{q.Sort}.Sanitize() + ", id)" + sign + "($1, $2)", Args: []any{q.After.Value, q.After.ID}}
}

// Position returns the position of an item in a list sorted by the column.
func (v *View[V]) Position(item *V, sort string) Position {
	value := reflect.ValueOf(item).Elem()
	at := Position{ID: v.columns.ID(value)}
	if sort != "" {
		at.Value = v.columns.Value(value, sort)
	}
	return at
}

// Count counts the rows. It stops at limit, unless that is 0.
func (v *View[V]) Count(ctx context.Context, db pg.Querier, q Query, limit int) (n int64, err error) {
	var args statement.Arguments
	limitSQL := ""
	if limit > 0 {
		limitSQL = " LIMIT " + args.Add(limit)
	}
	found := v.selectIDs(&args, q, "id", func() string { return limitSQL })
	sql := "SELECT count(*) FROM (SELECT FROM (" + found + ") found" + limitSQL + ") counted"
	err = db.QueryRow(ctx, sql, append([]any{planEachTime}, args...)...).
		Scan(&n)
	return n, err
}

// SQL returns a statement that reads all rows of the sources, or of the view if from is nil.
func (v *View[V]) SQL(from []pg.Source) string {
	var args statement.Arguments
	found := v.selectIDs(&args, Query{From: from}, "id", func() string { return "" })
	return "SELECT " + v.columns.List() + " FROM " + v.name + " WHERE id IN (" + found + ")"
}

// TypeOf returns the Go type of a column, or nil if the view has no such column.
func (v *View[V]) TypeOf(column string) reflect.Type { return v.columns.TypeOf(column) }
