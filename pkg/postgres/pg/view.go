package pg

import (
	"context"
	"reflect"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/statement"
)

// Condition is a boolean SQL expression on a row. Its arguments are $1, $2 and so on.
type Condition struct {
	SQL    string
	Args   []any
	PerRow bool // true: the view has several rows with one id, and the condition is tested on each
}

// Source is a view in which a list finds its rows. Besides id, the view has the columns of the list's conditions and sort.
type Source struct {
	View  string      // empty: the list's own view
	Where []Condition // in addition to the list's conditions
}

// View reads values of V from a table or SQL view. The view has a column for each member with a db tag, and the column id.
type View[V any] struct {
	columns    *statement.Columns
	selectAll  string
	selectByID string
}

// NewView returns the View of a table or SQL view. It panics if V has no member for the column id.
func NewView[V any](name string) *View[V] {
	c := statement.ItemColumnsOf(reflect.TypeFor[V]())
	from := "SELECT " + c.List() + " FROM " + pgx.Identifier{name}.Sanitize()
	return &View[V]{c, from, from + " WHERE id = $1"}
}

// SQL returns a statement that reads all rows.
func (v *View[V]) SQL() string { return v.selectAll }

// Find reads the row for which the condition is true. It returns pgx.ErrNoRows if there is none.
func (v *View[V]) Find(ctx context.Context, q Querier, condition string, args ...any) (V, error) {
	return v.scanOne(ctx, q, v.selectAll+" WHERE "+condition, args...)
}

// Get reads the row with this id, if all conditions are true for it. Otherwise it returns pgx.ErrNoRows.
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

// GetMany reads the rows with these ids for which all conditions are true, in the order of the ids. Missing rows are left
// out.
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
