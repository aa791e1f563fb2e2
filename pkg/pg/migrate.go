package pg

import (
	"context"
	"embed"
	"fmt"
	"hash/fnv"
	"io/fs"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var shared embed.FS

// Migrate brings the schema up to date: first the tables that every service has, then the service's own, if it has
// any, from the folder "migrations" of own. Any number of processes may call it at once.
func (db *DB) Migrate(ctx context.Context, service string, own fs.FS) error {
	for _, step := range steps(own) {
		if err := db.migrate(ctx, service, step); err != nil {
			return fmt.Errorf("migrate %s: %w", service, err)
		}
	}
	return nil
}

// Migrated fails where the schema lacks a migration. One that has more is that of a newer version, and will do: what
// is added leaves the older one working.
func (db *DB) Migrated(ctx context.Context, own fs.FS) error {
	for _, step := range steps(own) {
		lacks, err := db.lacks(ctx, step)
		if err != nil {
			return fmt.Errorf("look at the schema's migrations: %w", err)
		}
		if len(lacks) > 0 {
			return fmt.Errorf("the schema is older than this program, which needs its migrations %s: run migrate first", strings.Join(lacks, ", "))
		}
	}
	return nil
}

// step is a folder of migrations, and the table of those that are done.
type step struct {
	table string
	files fs.FS
}

func steps(own fs.FS) []step {
	all := []step{{"migration_shared", folder(shared)}}
	if own != nil {
		all = append(all, step{"migration", folder(own)})
	}
	return all
}

func folder(of fs.FS) fs.FS {
	files, err := fs.Sub(of, "migrations")
	if err != nil {
		panic(err) // only for names that are not this
	}
	return files
}

// lacks are the files that are not done.
func (db *DB) lacks(ctx context.Context, s step) (missing []string, err error) {
	files, err := fs.Glob(s.files, "*.sql")
	if err != nil {
		return nil, err
	}
	var there bool
	if err := db.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", s.table).Scan(&there); err != nil {
		return nil, err
	}
	if !there {
		return files, nil
	}
	rows, err := db.Query(ctx, "SELECT version_id FROM "+s.table+" WHERE is_applied")
	if err != nil {
		return nil, err
	}
	done, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		version, err := goose.NumericComponent(file)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(done, version) {
			missing = append(missing, file)
		}
	}
	return missing, nil
}

func (db *DB) migrate(ctx context.Context, service string, s step) error {
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
	provider, err := goose.NewProvider(goose.DialectPostgres, sqldb, s.files,
		goose.WithTableName(s.table), goose.WithSessionLocker(locker))
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}
