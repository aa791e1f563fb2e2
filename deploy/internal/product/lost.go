package product

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/secret"
)

// MarkLost marks, as the database's administrator, schemas that begin anew though others have applied changes of them:
// what was in them is lost. They serve nothing until they are taken up.
func MarkLost(ctx context.Context, admin secret.String) error {
	conn, err := pool.Connect(ctx, admin.Reveal())
	if err != nil {
		return fmt.Errorf("connect as the database's administrator: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	fresh, used, err := schemasOf(ctx, conn)
	if err != nil {
		return fmt.Errorf("look which schemas are there: %w", err)
	}
	for _, name := range fresh {
		for _, reader := range used {
			if err := markLost(ctx, conn, name, reader); err != nil {
				return fmt.Errorf("look whether %s has heard of %s: %w", reader, name, err)
			}
		}
	}
	return nil
}

// schemasOf are the services' schemas that nothing was made in yet, and the others.
func schemasOf(ctx context.Context, conn *pgx.Conn) (fresh, used []string, err error) {
	for _, name := range Names() {
		var is bool
		if err := conn.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", pgx.Identifier{name, "change_cursor"}.Sanitize()).
			Scan(&is); err != nil {
			return nil, nil, err
		}
		if is {
			used = append(used, name)
		} else {
			fresh = append(fresh, name)
		}
	}
	return fresh, used, nil
}

func markLost(ctx context.Context, conn *pgx.Conn, name, reader string) error {
	var heard bool
	err := conn.QueryRow(
		ctx, "SELECT EXISTS (SELECT FROM "+pgx.Identifier{reader, "change_cursor"}.Sanitize()+" WHERE source = $1 AND seq > 0)", name,
	).
		Scan(&heard)
	if err != nil || !heard {
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
