package pg

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/seal"
)

// View reads values of V from a table or SQL view that has a column for each member with a db tag, and the
// column id.
type View[V any] struct {
	columns *columns
	name    string
	from    string
	get     string
	id      []int
}

// NewView makes the view of a table or SQL view. It panics where V cannot be one, which is at start-up.
func NewView[V any](name string) *View[V] {
	c := columnsOf(reflect.TypeFor[V]())
	name = pgx.Identifier{name}.Sanitize()
	from := "SELECT " + c.list() + " FROM " + name
	v := &View[V]{columns: c, name: name, from: from, get: from + " WHERE id = $1"}
	for i, column := range c.names {
		if column == "id" {
			v.id = c.members[i].index
		}
	}
	if v.id == nil {
		panic(fmt.Sprintf("pg: %s has no member for the column id", reflect.TypeFor[V]()))
	}
	return v
}

// One reads the row of which the condition is true; pgx.ErrNoRows where there is none.
func (v *View[V]) One(ctx context.Context, q Querier, condition string, args ...any) (V, error) {
	return v.one(ctx, q, v.from+" WHERE "+condition, args...)
}

// Get reads the row of this id, if all conditions are true of it; pgx.ErrNoRows where there is none.
func (v *View[V]) Get(ctx context.Context, q Querier, id int64, where ...Condition) (V, error) {
	args, sql := arguments{id}, v.get
	for _, c := range where {
		sql += " AND " + args.condition(c)
	}
	return v.one(ctx, q, sql, args...)
}

func (v *View[V]) one(ctx context.Context, q Querier, sql string, args ...any) (V, error) {
	var value V
	err := v.columns.scan(q.QueryRow(ctx, sql, args...), reflect.ValueOf(&value).Elem())
	return value, err
}

// Some reads the rows of these ids of which all conditions are true, in the ids' order. What is not there is left out.
func (v *View[V]) Some(ctx context.Context, q Querier, ids []int64, where ...Condition) ([]V, error) {
	args := arguments{ids}
	sql := v.from + " WHERE id = ANY ($1)"
	for _, c := range where {
		sql += " AND " + args.condition(c)
	}
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	var value V
	into := v.columns.scanner(reflect.ValueOf(&value).Elem())
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (V, error) {
		err := into.scan(row)
		return value, err
	})
	at := make(map[int64]int, len(ids))
	for i, id := range ids {
		at[id] = i
	}
	slices.SortFunc(found, func(a, b V) int { return at[v.idOf(&a)] - at[v.idOf(&b)] })
	return found, err
}

func (v *View[V]) idOf(item *V) int64 { return reflect.ValueOf(item).Elem().FieldByIndex(v.id).Int() }

// Table writes values of B to a table that has a column for each member with a db tag, and the columns id and
// version. It reads them from the table's view, which has these columns, too, but for those that are sealed.
type Table[B any] struct {
	name                           string
	box                            *seal.Box
	columns                        *columns
	hold, load, insert, edit, drop string
}

// NewTable makes the statements for a table and its view. The box is for sealed columns.
func NewTable[B any](table, view string, box *seal.Box) *Table[B] {
	name, c := table, columnsOf(reflect.TypeFor[B]())
	table, view = pgx.Identifier{table}.Sanitize(), pgx.Identifier{view}.Sanitize()
	sets, places := make([]string, len(c.names)), make([]string, len(c.names))
	for i, column := range c.names {
		sets[i] = fmt.Sprintf("%s = $%d", pgx.Identifier{column}.Sanitize(), i+2)
		places[i] = fmt.Sprintf("$%d", i+1)
	}
	return &Table[B]{
		name:    name,
		box:     box,
		columns: c,
		hold:    "SELECT FROM " + table + " WHERE id = ANY ($1) ORDER BY id FOR UPDATE",
		load:    "SELECT " + c.list() + " FROM " + view + " WHERE id = $1",
		insert:  "INSERT INTO " + table + " (" + c.list() + ") VALUES (" + strings.Join(places, ", ") + ") RETURNING id",
		edit:    "UPDATE " + table + " SET version = version + 1, " + strings.Join(sets, ", ") + " WHERE id = $1",
		drop:    "DELETE FROM " + table + " WHERE id = $1",
	}
}

// Hold keeps other writers off the rows of these ids until the unit of work ends. What is read afterwards, in statements
// of its own, is what they left.
func (t *Table[B]) Hold(ctx context.Context, tx *Tx, ids ...int64) error {
	_, err := tx.Exec(ctx, t.hold, ids)
	return err
}

// Load reads the row of this id.
func (t *Table[B]) Load(ctx context.Context, tx *Tx, id int64) (*B, error) {
	value := new(B)
	if err := t.columns.scan(tx.QueryRow(ctx, t.load, id), reflect.ValueOf(value).Elem()); err != nil {
		return value, err
	}
	return value, t.noteSealed(ctx, tx, id, reflect.ValueOf(value).Elem())
}

// Insert writes a new row and answers its id.
func (t *Table[B]) Insert(ctx context.Context, tx *Tx, value *B) (int64, error) {
	var id int64
	v := reflect.ValueOf(value).Elem()
	if err := tx.QueryRow(ctx, t.insert, t.columns.values(v)...).Scan(&id); err != nil {
		return 0, err
	}
	return id, t.seal(ctx, tx, id, v)
}

// Update writes over the row of this id.
func (t *Table[B]) Update(ctx context.Context, tx *Tx, id int64, value *B) error {
	v := reflect.ValueOf(value).Elem()
	if _, err := tx.Exec(ctx, t.edit, append([]any{id}, t.columns.values(v)...)...); err != nil {
		return err
	}
	return t.seal(ctx, tx, id, v)
}

// Delete removes the row of this id.
func (t *Table[B]) Delete(ctx context.Context, tx *Tx, id int64) error {
	_, err := tx.Exec(ctx, t.drop, id)
	return err
}
