package pg

import (
	"context"
	"embed"
	"fmt"
	"hash/fnv"
	"io/fs"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var shared embed.FS

// Migrate brings the schema up to date: first the tables that every service has, then the service's own, if it has
// any, from the folder "migrations" of own. Any number of processes may call it at once.
func (db *DB) Migrate(ctx context.Context, service string, own fs.FS) error {
	for _, step := range []struct {
		table string
		from  fs.FS
	}{{"migration_shared", shared}, {"migration", own}} {
		if step.from == nil {
			continue
		}
		if err := db.migrate(ctx, service, step.table, step.from); err != nil {
			return fmt.Errorf("migrate %s: %w", service, err)
		}
	}
	return nil
}

func (db *DB) migrate(ctx context.Context, service, table string, from fs.FS) error {
	files, err := fs.Sub(from, "migrations")
	if err != nil {
		return err
	}
	name := fnv.New64a()
	name.Write([]byte("migrate " + service))
	locker, err := lock.NewPostgresSessionLocker(
		lock.WithLockID(int64(name.Sum64())), lock.WithLockTimeout(1, 600), lock.WithUnlockTimeout(1, 5))
	if err != nil {
		return err
	}
	config := db.pool.Config().ConnConfig.Copy()
	for name := range limits { // which are for requests
		delete(config.RuntimeParams, name)
	}
	sqldb := stdlib.OpenDB(*config)
	defer sqldb.Close()
	provider, err := goose.NewProvider(goose.DialectPostgres, sqldb, files,
		goose.WithTableName(table), goose.WithSessionLocker(locker))
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}
