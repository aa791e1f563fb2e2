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

// planEachTime has Postgres make a plan for these very arguments. The plan of a prepared statement may come to be one for
// any: but a word that nothing has and one that everything has need different ones.
const planEachTime = pgx.QueryExecModeCacheDescribe

// Query says which rows of a view, in which order.
type Query struct {
	From  []pg.Source    // a row is listed once, whichever have it; none: the view itself
	Where []pg.Condition // all of them
	Sort  string         // a column that is never NULL; id where it is empty
	Desc  bool
	After *Position // only what comes after it
	Limit int       // 0: all
	Skip  int
}

// Position is where a row stands.
type Position struct {
	Value any // of the column that is sorted by; nil where that is id
	ID    int64
}

// View is a SQL view, or a table, of which each row is a V. It has the column id.
type View[V any] struct {
	columns *statement.Columns
	name    string
}

// New makes the view. It panics where V cannot be a row of one, which is at start-up.
func New[V any](name string) *View[V] {
	return &View[V]{statement.ItemColumnsOf(reflect.TypeFor[V]()), pgx.Identifier{name}.Sanitize()}
}

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

// selectIDs is the SELECT of the rows that a query's sources have, each planned by itself, as no index finds both.
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

// List reads the rows, a batch at a time: each row that is there throughout comes once, and no snapshot
// is held while a slow caller reads. The next batch is read while the last is used.
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

type batchResult[V any] struct {
	rows   []V
	wanted int
	err    error
}

// startBatch reads a batch. Exactly one value comes.
func (v *View[V]) startBatch(ctx context.Context, db pg.Querier, q Query) <-chan batchResult[V] {
	done := make(chan batchResult[V], 1)
	wanted := batchSize
	if q.Limit > 0 {
		wanted = min(wanted, q.Limit)
	}
	go func() {
		read := batchResult[V]{wanted: wanted}
		defer func() {
			if p := recover(); p != nil { // it would end the process
				read.err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
			done <- read
		}()
		read.rows, read.err = v.readBatch(ctx, db, q, wanted)
	}()
	return done
}

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
	} else { // first the rows, then what belongs to them
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

// Position is where an item stands among those that are sorted by this column.
func (v *View[V]) Position(item *V, sort string) Position {
	value := reflect.ValueOf(item).Elem()
	at := Position{ID: v.columns.ID(value)}
	if sort != "" {
		at.Value = v.columns.Value(value, sort)
	}
	return at
}

// Count counts the rows, up to a limit where that is not 0.
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

// SQL is a statement that reads the rows that sources have; nil: the view.
func (v *View[V]) SQL(from []pg.Source) string {
	var args statement.Arguments
	found := v.selectIDs(&args, Query{From: from}, "id", func() string { return "" })
	return "SELECT " + v.columns.List() + " FROM " + v.name + " WHERE id IN (" + found + ")"
}

// TypeOf is the Go type of a column; nil where there is no such column.
func (v *View[V]) TypeOf(column string) reflect.Type { return v.columns.TypeOf(column) }
