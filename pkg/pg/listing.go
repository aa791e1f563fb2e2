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
	// In is a view that has what the condition asks for, and besides all that a listing's other conditions and its sort
	// ask for; where the listing's own view has it, it is empty. At most one row of it is of the same item and meets the
	// condition.
	In string
	// Alone is a view as In, to be used where the condition is the only one and the order is that of the ids.
	Alone string
	// Or is another one that may be true instead. Each is looked for by itself, as no index finds both.
	Or *Condition
}

// ways are the lists of conditions without an Or, of which one must be all true.
func ways(where []Condition) [][]Condition {
	for i, c := range where {
		if c.Or != nil {
			either, or := slices.Clone(where), slices.Clone(where)
			either[i].Or, or[i] = nil, *c.Or
			return append(ways(either), ways(or)...)
		}
	}
	return [][]Condition{where}
}

// Listing says which rows of a view, in which order.
type Listing struct {
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

// in is the view to find rows in.
func (v *View[V]) in(conditions []Condition, sort string) string {
	if len(conditions) == 1 && sort == "" && conditions[0].Alone != "" {
		return pgx.Identifier{conditions[0].Alone}.Sanitize()
	}
	for _, c := range conditions {
		if c.In != "" {
			return pgx.Identifier{c.In}.Sanitize()
		}
	}
	return v.name
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
	part := func(conditions []Condition, most, skip int) string {
		if l.After != nil {
			conditions = append(slices.Clip(conditions), l.after())
		}
		written := args.where(conditions) + order + " LIMIT " + args.add(most)
		if skip > 0 {
			written += " OFFSET " + args.add(skip)
		}
		return written
	}
	sql := v.from
	switch ways := ways(l.Where); {
	case len(ways) > 1: // the rows that each way finds, of these the first, then what belongs to them
		found := make([]string, len(ways))
		for i, way := range ways {
			found[i] = "(SELECT " + columns + " FROM " + v.in(way, l.Sort) + part(way, wanted+l.Skip, 0) + ")"
		}
		sql += " WHERE id = ANY (ARRAY(SELECT id FROM (" + strings.Join(found, " UNION ") + ") found" +
			order + " LIMIT " + args.add(wanted) + " OFFSET " + args.add(l.Skip) + "))" + order
	case len(l.Where) > 0 || l.Sort != "": // first the rows, then what belongs to them
		sql += " WHERE id = ANY (ARRAY(SELECT id FROM " + v.in(l.Where, l.Sort) + part(l.Where, wanted, l.Skip) + "))" + order
	default:
		sql += part(nil, wanted, l.Skip)
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

// Count counts the rows of which all conditions are true, up to a limit where that is not 0.
func (v *View[V]) Count(ctx context.Context, q Querier, where []Condition, limit int) (n int64, err error) {
	var args arguments
	most := ""
	if limit > 0 {
		most = " LIMIT " + args.add(limit)
	}
	found := []string{}
	for _, way := range ways(where) {
		found = append(found, "(SELECT id FROM "+v.in(way, "")+args.where(way)+most+")")
	}
	sql := "SELECT FROM (" + strings.Join(found, " UNION ") + ") found" + most
	err = q.QueryRow(ctx, "SELECT count(*) FROM ("+sql+") counted", append([]any{planned}, args...)...).Scan(&n)
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
