// Package table writes structs to plain tables, and seals the secrets among their members.
package table

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/statement"
	"github.com/ironplane/ironplane/pkg/seal"
)

// Table writes values of B to a table that has a column for each member with a db tag, and the columns id and version. It
// reads them from the table's view, which has the same columns except the sealed ones.
type Table[B any] struct {
	SQL     Statements
	name    string
	box     *seal.Box
	columns *statement.Columns
}

// Statements is the SQL of a Table's methods.
type Statements struct {
	Lock, Load, Insert, Update, Delete string
}

// New returns the Table for a table and its view. The box seals and opens its sealed columns.
func New[B any](table, view string, box *seal.Box) *Table[B] {
	name, c := table, statement.ColumnsOf(reflect.TypeFor[B]())
	table, view = pgx.Identifier{table}.Sanitize(), pgx.Identifier{view}.Sanitize()
	sets, placeholders := make([]string, len(c.Names)), make([]string, len(c.Names))
	for i, column := range c.Names {
		sets[i] = fmt.Sprintf("%s = $%d", pgx.Identifier{column}.Sanitize(), i+2)
		placeholders[i] = fmt.Sprintf("$%d", i+1)
	}
	return &Table[B]{
		name:    name,
		box:     box,
		columns: c,
		SQL: Statements{
			Lock:   "SELECT FROM " + table + " WHERE id = ANY ($1) ORDER BY id FOR UPDATE",
			Load:   "SELECT " + c.List() + " FROM " + view + " WHERE id = $1",
			Insert: "INSERT INTO " + table + " (" + c.List() + ") VALUES (" + strings.Join(placeholders, ", ") + ") RETURNING id",
			Update: "UPDATE " + table + " SET version = version + 1, " + strings.Join(sets, ", ") + " WHERE id = $1",
			Delete: "DELETE FROM " + table + " WHERE id = $1",
		},
	}
}

// Lock locks the rows with these ids against other writers until the unit of work ends. Later statements see what earlier
// writers committed.
func (t *Table[B]) Lock(ctx context.Context, tx *pg.Tx, ids ...int64) error {
	_, err := tx.Exec(ctx, t.SQL.Lock, ids)
	return err
}

// Load reads the row with this id.
func (t *Table[B]) Load(ctx context.Context, tx *pg.Tx, id int64) (*B, error) {
	value := new(B)
	if err := t.columns.Scan(tx.QueryRow(ctx, t.SQL.Load, id), reflect.ValueOf(value).Elem()); err != nil {
		return value, err
	}
	return value, t.markSealed(ctx, tx, id, reflect.ValueOf(value).Elem())
}

// Insert writes a new row and returns its id.
func (t *Table[B]) Insert(ctx context.Context, tx *pg.Tx, value *B) (int64, error) {
	var id int64
	v := reflect.ValueOf(value).Elem()
	if err := tx.QueryRow(ctx, t.SQL.Insert, t.columns.Values(v)...).Scan(&id); err != nil {
		return 0, err
	}
	return id, t.seal(ctx, tx, id, v)
}

// Update replaces the row with this id.
func (t *Table[B]) Update(ctx context.Context, tx *pg.Tx, id int64, value *B) error {
	v := reflect.ValueOf(value).Elem()
	if _, err := tx.Exec(ctx, t.SQL.Update, append([]any{id}, t.columns.Values(v)...)...); err != nil {
		return err
	}
	return t.seal(ctx, tx, id, v)
}

// Delete deletes the row with this id.
func (t *Table[B]) Delete(ctx context.Context, tx *pg.Tx, id int64) error {
	_, err := tx.Exec(ctx, t.SQL.Delete, id)
	return err
}
