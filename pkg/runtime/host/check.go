package host

import (
	"context"
	"errors"

	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/migrate"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
)

// Checks returns checks of the schema that a service's role finds at a URL, for a process with this many connections. The
// box is nil if the service seals nothing or its key is invalid. The checks change nothing.
func Checks(d service.Definition, url secret.String, connections int, o pool.Options, box *seal.Box) (checks []health.Check) {
	withPool := func(ctx context.Context, ask func(*pool.Pool) error) error {
		db, err := pool.Open(ctx, url.Reveal(), connections, o)
		if err != nil {
			return err
		}
		defer db.Close()
		return ask(db)
	}
	if !o.Direct.IsZero() {
		checks = append(checks, health.Check{Name: "DATABASE_DIRECT_URL: PostgreSQL can be reached", Ask: func(ctx context.Context) error {
			return withPool(ctx, func(db *pool.Pool) error {
				conn, err := db.Connect(ctx)
				if err != nil {
					return err
				}
				return conn.Close(ctx)
			})
		}})
	}
	return append(checks, []health.Check{
		{Name: "DATABASE_URL: the schema is up to date", Ask: func(ctx context.Context) error {
			return withPool(ctx, func(db *pool.Pool) error {
				err := errors.Join(db.CheckRights(ctx, d.Name), pool.CheckSession(ctx, db.DB, d.Name, d.Parameters))
				if err != nil {
					return err
				}
				if _, err := checkSchema(ctx, d, db.DB); err != nil || box == nil {
					return err
				}
				return checkSealed(ctx, db.DB, box)
			})
		}},
		{Name: "DATABASE_URL: there are enough connections", Optional: true, Ask: func(ctx context.Context) error {
			return withPool(ctx, func(db *pool.Pool) error {
				if !o.Direct.IsZero() { // the pooler limits them
					return nil
				}
				short, err := db.Shortage(ctx)
				if err == nil && short != "" {
					err = errors.New(short)
				}
				return err
			})
		}},
	}...)
}

// CheckBeforeMigration fails if a process with this box could not serve the schema once it is migrated: the schema was
// restored from a backup, or sealed with another key. The box is nil for a service that seals nothing. It changes nothing.
func CheckBeforeMigration(ctx context.Context, d service.Definition, db *pg.DB, box *seal.Box) error {
	_, err := checkSchema(ctx, d, db)
	if errors.Is(err, migrate.ErrOlder) {
		return nil
	}
	if err != nil || box == nil {
		return err
	}
	return checkSealed(ctx, db, box)
}

// checkSchema fails if the schema lacks a migration, or was restored from a backup and not reconciled since. It returns the
// schema's history.
func checkSchema(ctx context.Context, d service.Definition, db *pg.DB) (history string, err error) {
	if err := migrate.Check(ctx, db, migrations(d)...); err != nil {
		return "", err
	}
	return events.CurrentHistory(ctx, db)
}
