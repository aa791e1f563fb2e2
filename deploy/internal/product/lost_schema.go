package product

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/secret"
)

// MarkLostSchemas finds schemas that are empty although other schemas have applied changes of them: their data is lost. It
// marks them, as the database's administrator, so that they serve nothing until they are reconciled.
func MarkLostSchemas(ctx context.Context, admin secret.String) error {
	conn, err := pool.Connect(ctx, admin.Reveal())
	if err != nil {
		return fmt.Errorf("connect as the database's administrator: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	fresh, used, err := findSchemas(ctx, conn)
	if err != nil {
		return fmt.Errorf("list the schemas: %w", err)
	}
	for _, name := range fresh {
		for _, reader := range used {
			if err := markLost(ctx, conn, name, reader); err != nil {
				return fmt.Errorf("check whether %s has applied changes of %s: %w", reader, name, err)
			}
		}
	}
	return nil
}

// findSchemas returns the services whose schemas are empty, and the others.
func findSchemas(ctx context.Context, conn *pgx.Conn) (fresh, used []string, err error) {
	for _, name := range Names() {
		var exists bool
		if err := conn.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", pgx.Identifier{name, "change_cursor"}.Sanitize()).
			Scan(&exists); err != nil {
			return nil, nil, err
		}
		if exists {
			used = append(used, name)
		} else {
			fresh = append(fresh, name)
		}
	}
	return fresh, used, nil
}

// markLost marks the schema name if reader has applied changes of it.
func markLost(ctx context.Context, conn *pgx.Conn, name, reader string) error {
	var applied bool
	err := conn.QueryRow(
		ctx, "SELECT EXISTS (SELECT FROM "+pgx.Identifier{reader, "change_cursor"}.Sanitize()+" WHERE source = $1 AND seq > 0)", name,
	).
		Scan(&applied)
	if err != nil || !applied {
		return err
	}
	var owner string
	if err := conn.QueryRow(ctx, "SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = $1", name).Scan(&owner); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SET LOCAL ROLE "+owner+"; CREATE TABLE IF NOT EXISTS "+pgx.Identifier{name, "lost"}.Sanitize()+" ()")
		return err
	})
}
