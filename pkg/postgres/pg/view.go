package pg

import (
	"context"
	"reflect"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/statement"
)

// Condition is a piece of SQL that is true or false of a row, with its arguments as $1, $2 …
type Condition struct {
	SQL    string
	Args   []any
	PerRow bool // it tells rows of a view apart that have one id
}

// Source is where rows of a list are found: in a view that has, besides id, the columns of the list's conditions and of its
// sort.
type Source struct {
	View  string      // the list's own where it is empty
	Where []Condition // besides the list's
}

// View reads values of V from a table or SQL view that has a column for each member with a db tag, and the
// column id.
type View[V any] struct {
	columns    *statement.Columns
	selectAll  string
	selectByID string
}

// NewView makes the view of a table or SQL view. It panics where V cannot be one, which is at start-up.
func NewView[V any](name string) *View[V] {
	c := statement.ItemColumnsOf(reflect.TypeFor[V]())
	from := "SELECT " + c.List() + " FROM " + pgx.Identifier{name}.Sanitize()
	return &View[V]{c, from, from + " WHERE id = $1"}
}

// SQL is a statement that reads all rows.
func (v *View[V]) SQL() string { return v.selectAll }

// Find reads the row of which the condition is true; pgx.ErrNoRows where there is none.
func (v *View[V]) Find(ctx context.Context, q Querier, condition string, args ...any) (V, error) {
	return v.scanOne(ctx, q, v.selectAll+" WHERE "+condition, args...)
}

// Get reads the row of this id, if all conditions are true of it; pgx.ErrNoRows where there is none.
func (v *View[V]) Get(ctx context.Context, q Querier, id int64, where ...Condition) (V, error) {
	args, sql := statement.Arguments{id}, v.selectByID
	for _, c := range where {
		sql += " AND " + args.Append(c.SQL, c.Args)
	}
	return v.scanOne(ctx, q, sql, args...)
}

func (v *View[V]) scanOne(ctx context.Context, q Querier, sql string, args ...any) (V, error) {
	var value V
	err := v.columns.Scan(q.QueryRow(ctx, sql, args...), reflect.ValueOf(&value).Elem())
	return value, err
}

// GetMany reads the rows of these ids of which all conditions are true, in the ids' order. What is not there is left out.
func (v *View[V]) GetMany(ctx context.Context, q Querier, ids []int64, where ...Condition) ([]V, error) {
	args := statement.Arguments{ids}
	sql := v.selectAll + " WHERE id = ANY ($1)"
	for _, c := range where {
		sql += " AND " + args.Append(c.SQL, c.Args)
	}
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	found, err := statement.Collect[V](v.columns, rows)
	at := make(map[int64]int, len(ids))
	for i, id := range ids {
		at[id] = i
	}
	slices.SortFunc(found, func(a, b V) int { return at[v.itemID(&a)] - at[v.itemID(&b)] })
	return found, err
}

func (v *View[V]) itemID(item *V) int64 { return v.columns.ID(reflect.ValueOf(item).Elem()) }
