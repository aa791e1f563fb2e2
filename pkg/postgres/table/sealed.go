package table

import (
	"context"
	"fmt"
	"reflect"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
)

// seal updates the sealed columns of an existing row from the members of v. A secret is sealed and stored. The zero value
// keeps the stored secret, and a nil pointer removes it.
func (t *Table[B]) seal(ctx context.Context, tx *pg.Tx, id int64, v reflect.Value) error {
	for _, column := range t.columns.Sealed {
		member, sealed := v.FieldByIndex(column.Index), []byte(nil)
		if member.Kind() != reflect.Pointer || !member.IsNil() {
			value := reflect.Indirect(member).Interface().(secret.String)
			if value.IsZero() {
				continue
			}
			sealed = t.box.Seal(seal.Location{Table: t.name, Column: column.Name, ID: id}, value)
		}
		_, err := tx.Exec(
			ctx,
			"UPDATE "+pgx.Identifier{t.name}.Sanitize()+" SET "+pgx.Identifier{column.Name}.Sanitize()+" = $2 WHERE id = $1",
			id,
			sealed,
		)
		if err != nil {
			return fmt.Errorf("seal %s: %w", column.Name, err)
		}
	}
	return nil
}

// markSealed sets pointer members to the zero secret if the row has a sealed value, and leaves them nil if it has none.
func (t *Table[B]) markSealed(ctx context.Context, tx *pg.Tx, id int64, v reflect.Value) error {
	for _, column := range t.columns.Sealed {
		member := v.FieldByIndex(column.Index)
		if member.Kind() != reflect.Pointer {
			continue
		}
		var exists bool
		err := tx.QueryRow(
			ctx, "SELECT "+pgx.Identifier{column.Name}.Sanitize()+" IS NOT NULL FROM "+pgx.Identifier{t.name}.Sanitize()+" WHERE id = $1", id,
		).
			Scan(&exists)
		if err != nil {
			return fmt.Errorf("look for %s: %w", column.Name, err)
		}
		if exists {
			member.Set(reflect.ValueOf(&secret.String{}))
		}
	}
	return nil
}
