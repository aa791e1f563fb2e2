package pg

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// batch is how many rows a list reads at a time. Between two batches it holds no connection and no snapshot.
const batch = 2000

// planned has Postgres make a plan for these very arguments. The plan of a prepared statement may come to be one for
// any: but a word that nothing has and one that everything has need different ones.
const planned = pgx.QueryExecModeCacheDescribe

// Condition is a piece of SQL that is true or false of a row, with its arguments as $1, $2 …
type Condition struct {
	SQL  string
	Args []any
}

// Source is where rows of a listing are found: in a view that has, besides id, the columns of the listing's conditions
// and of its sort.
type Source struct {
	View  string      // the listing's own where it is empty
	Where []Condition // besides the listing's
}

// Listing says which rows of a view, in which order.
type Listing struct {
	From  []Source    // a row is listed once, whichever have it; none: the listing's own view
	Where []Condition // all of them
	Sort  string      // a column that is never NULL; id where it is empty
	Desc  bool
	After *Position // only what comes after it
	Limit int       // 0: all
	Skip  int
}

// Position is where a row stands in a listing.
type Position struct {
	Value any // of the column that is sorted by; nil where that is id
	ID    int64
}

// arguments collects a statement's arguments.
type arguments []any

func (a *arguments) add(value any) string {
	*a = append(*a, value)
	return fmt.Sprintf("$%d", len(*a))
}

// condition writes c with its arguments moved behind those that are there.
func (a *arguments) condition(c Condition) string {
	sql := c.SQL
	for i := len(c.Args); i >= 1; i-- { // from the last, so that $1 does not take the 1 of $10
		sql = strings.ReplaceAll(sql, fmt.Sprintf("$%d", i), fmt.Sprintf("$\x00%d", len(*a)+i))
	}
	*a = append(*a, c.Args...)
	return "(" + strings.ReplaceAll(sql, "\x00", "") + ")"
}

func (a *arguments) where(conditions []Condition) string {
	if len(conditions) == 0 {
		return ""
	}
	written := make([]string, len(conditions))
	for i, c := range conditions {
		written[i] = a.condition(c)
	}
	return " WHERE " + strings.Join(written, " AND ")
}

// found is the SELECT of the rows that a listing's sources have, each planned by itself, as no index finds both.
func (v *View[V]) found(args *arguments, l Listing, columns string, end func() string) string {
	if len(l.From) == 0 {
		l.From = []Source{{}}
	}
	parts := make([]string, len(l.From))
	for i, source := range l.From {
		from := v.name
		if source.View != "" {
			from = pgx.Identifier{source.View}.Sanitize()
		}
		parts[i] = "(SELECT " + columns + " FROM " + from + args.where(slices.Concat(l.Where, source.Where)) + end() + ")"
	}
	return strings.Join(parts, " UNION ")
}

// List reads the rows of a listing, a batch at a time: each row that is there throughout comes once, and no snapshot
// is held while a slow caller reads. The next batch is read while the last is used.
func (v *View[V]) List(ctx context.Context, q Querier, l Listing) iter.Seq2[V, error] {
	return func(yield func(V, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		next := v.start(ctx, q, l)
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
			if l.Limit -= len(read.rows); len(read.rows) == read.wanted && l.Limit != 0 {
				at := v.Position(&read.rows[len(read.rows)-1], l.Sort)
				l.After, l.Skip = &at, 0
				next = v.start(ctx, q, l)
			}
			for i := range read.rows {
				if !yield(read.rows[i], nil) {
					return
				}
			}
		}
	}
}

type batchRead[V any] struct {
	rows   []V
	wanted int
	err    error
}

// start reads a batch. Exactly one value comes.
func (v *View[V]) start(ctx context.Context, q Querier, l Listing) <-chan batchRead[V] {
	done := make(chan batchRead[V], 1)
	wanted := batch
	if l.Limit > 0 {
		wanted = min(wanted, l.Limit)
	}
	go func() {
		read := batchRead[V]{wanted: wanted}
		defer func() {
			if p := recover(); p != nil { // it would end the process
				read.err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
			done <- read
		}()
		read.rows, read.err = v.batch(ctx, q, l, wanted)
	}()
	return done
}

func (v *View[V]) batch(ctx context.Context, q Querier, l Listing, wanted int) ([]V, error) {
	var args arguments
	direction := ""
	if l.Desc {
		direction = " DESC"
	}
	columns, order := "id", " ORDER BY id"+direction
	if l.Sort != "" {
		sort := pgx.Identifier{l.Sort}.Sanitize()
		columns, order = "id, "+sort, " ORDER BY "+sort+direction+", id"+direction
	}
	all := len(l.From) == 0 && len(l.Where) == 0 && l.Sort == ""
	if l.After != nil {
		l.Where = append(slices.Clip(l.Where), l.after())
	}
	page := func(most, skip int) string { return order + " LIMIT " + args.add(most) + " OFFSET " + args.add(skip) }
	sql := v.from
	if all {
		sql += args.where(l.Where) + page(wanted, l.Skip)
	} else { // first the rows, then what belongs to them
		found := v.found(&args, l, columns, func() string { return page(wanted+l.Skip, 0) })
		sql += " WHERE id = ANY (ARRAY(SELECT id FROM (" + found + ") found" + page(wanted, l.Skip) + "))" + order
	}
	rows, err := q.Query(ctx, sql, append([]any{planned}, args...)...)
	if err != nil {
		return nil, err
	}
	var value V
	into := v.columns.scanner(reflect.ValueOf(&value).Elem())
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (V, error) {
		err := into.scan(row)
		return value, err
	})
}

func (l Listing) after() Condition {
	sign := " > "
	if l.Desc {
		sign = " < "
	}
	if l.Sort == "" {
		return Condition{SQL: "id" + sign + "$1", Args: []any{l.After.ID}}
	}
	return Condition{SQL: "(" + pgx.Identifier{l.Sort}.Sanitize() + ", id)" + sign + "($1, $2)", Args: []any{l.After.Value, l.After.ID}}
}

// Position is where an item stands in a listing that is sorted by this column.
func (v *View[V]) Position(item *V, sort string) Position {
	at := Position{ID: v.idOf(item)}
	if sort != "" {
		at.Value = reflect.ValueOf(item).Elem().FieldByIndex(v.columns.member(sort).index).Interface()
	}
	return at
}

// Count counts a listing's rows, up to a limit where that is not 0.
func (v *View[V]) Count(ctx context.Context, q Querier, l Listing, limit int) (n int64, err error) {
	var args arguments
	most := ""
	if limit > 0 {
		most = " LIMIT " + args.add(limit)
	}
	found := v.found(&args, l, "id", func() string { return most })
	err = q.QueryRow(ctx, "SELECT count(*) FROM (SELECT FROM ("+found+") found"+most+") counted", append([]any{planned}, args...)...).Scan(&n)
	return n, err
}

// TypeOf is the Go type of a column; nil where there is no such column.
func (v *View[V]) TypeOf(column string) reflect.Type {
	m := v.columns.member(column)
	if m == nil {
		return nil
	}
	return reflect.TypeFor[V]().FieldByIndex(m.index).Type
}
