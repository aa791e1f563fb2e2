// Package migrate brings a service's schema up to date. Migrations run once each, in order. Definitions of views and trigger
// functions are applied after the migrations, whenever their text has changed.
package migrate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
)

// MigrationSet brings a schema up to date. It applies the files in the folders "migrations" of all Files, in the order of
// their numbers, which are unique. Then it applies the folders "schema/functions" and "schema/views".
type MigrationSet struct {
	Table string // holds the numbers of applied migrations
	Files []fs.FS
}

// migrateTimeout is how long Migrate waits for another process that migrates.
const migrateTimeout = 10 * time.Minute

// Migrate brings the schema up to date, one set after the other, and logs its changes. Any number of processes may call it
// at once.
func Migrate(ctx context.Context, to *pool.Pool, log *slog.Logger, all ...MigrationSet) error {
	if isUpToDate(ctx, to.DB, all) {
		return nil
	}
	conn, err := to.Connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	waiting, cancel := context.WithTimeout(ctx, migrateTimeout)
	defer cancel()
	if _, err := LockTable(waiting, conn, "migrating", ""); err != nil {
		return err
	}
	for _, m := range all {
		if _, err := m.verifyChecksums(ctx, to.DB); err != nil {
			return err
		}
		if err := m.migrate(ctx, conn.Config(), log); err != nil {
			return err
		}
		if err := m.applyDefinitions(ctx, conn.Config(), log); err != nil {
			return err
		}
	}
	return nil
}

// ErrOlder is the error for a schema that lacks migrations, or has earlier views or functions.
var ErrOlder = errors.New("the schema is older than this program")

// Check fails if the schema lacks a migration, or the present text of a view or function. A schema with more migrations
// passes: newer migrations leave the previous release working.
func Check(ctx context.Context, db *pg.DB, all ...MigrationSet) error {
	for _, m := range all {
		lacks, err := m.missingMigrations(ctx, db)
		if err != nil {
			return fmt.Errorf("read the schema's migrations: %w", err)
		}
		if len(lacks) > 0 {
			return fmt.Errorf("%w, and lacks the migrations %s: run migrate first", ErrOlder, strings.Join(lacks, ", "))
		}
		if _, err := m.verifyChecksums(ctx, db); err != nil {
			return err
		}
		due, err := m.dueFiles(ctx, db)
		if err != nil {
			return err
		}
		if len(due) > 0 {
			return fmt.Errorf("%w, and lacks %s: run migrate first", ErrOlder, strings.Join(due, ", "))
		}
	}
	return nil
}

// isUpToDate reports whether all migrations are applied and recorded, and all definitions are current. Most starts find
// that, and need neither the lock nor another connection. Errors count as no: Migrate looks again under the lock, because
// another process may be migrating.
func isUpToDate(ctx context.Context, db *pg.DB, all []MigrationSet) bool {
	for _, m := range all {
		if lacks, err := m.missingMigrations(ctx, db); err != nil || len(lacks) > 0 {
			return false
		}
		if noted, err := m.verifyChecksums(ctx, db); err != nil || !noted {
			return false
		}
		if due, err := m.dueFiles(ctx, db); err != nil || len(due) > 0 {
			return false
		}
	}
	return true
}

// folders presents the folders "migrations" of several file systems as one file system.
type folders []fs.FS

func (f folders) Open(name string) (fs.File, error) {
	for _, files := range f {
		if file, err := files.Open("migrations/" + name); !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// Glob implements fs.GlobFS.
func (f folders) Glob(pattern string) (names []string, err error) {
	for _, files := range f {
		found, err := fs.Glob(files, "migrations/"+pattern)
		if err != nil {
			return nil, err
		}
		for _, name := range found {
			names = append(names, path.Base(name))
		}
	}
	slices.Sort(names)
	return names, nil
}

// missingMigrations returns the files that are not applied.
func (m MigrationSet) missingMigrations(ctx context.Context, db *pg.DB) (missing []string, err error) {
	files, err := folders(m.Files).Glob("*.sql")
	if err != nil {
		return nil, err
	}
	var exists bool
	if err := db.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", m.Table).Scan(&exists); err != nil {
		return nil, err
	}
	if !exists {
		return files, nil
	}
	rows, err := db.Query(ctx, "SELECT version_id FROM "+m.Table+" WHERE is_applied")
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

// migrate applies the missing migrations.
func (m MigrationSet) migrate(ctx context.Context, config *pgx.ConnConfig, log *slog.Logger) error {
	sqldb := stdlib.OpenDB(*config)
	defer sqldb.Close()
	provider, err := goose.NewProvider(goose.DialectPostgres, sqldb, folders(m.Files), goose.WithTableName(m.Table))
	if err != nil {
		return err
	}
	before, err := provider.GetDBVersion(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	done, err := provider.Up(ctx)
	if len(done) > 0 {
		level := slog.LevelWarn
		if before == 0 { // a new schema
			level = slog.LevelInfo
		}
		log.Log(
			ctx,
			level,
			"schema migrated",
			"migrations",
			m.Table,
			"from",
			before,
			"to",
			done[len(done)-1].Source.Version,
			"duration",
			time.Since(began).Round(time.Millisecond),
		)
	}
	if err != nil {
		return err
	}
	return m.recordChecksums(ctx, sqldb)
}

// LockTable begins a transaction that locks a table until it ends. It creates the table if necessary. With the mode NOWAIT
// it fails with lock_not_available if another session has the lock. The table is in a schema that other roles cannot use; an
// advisory lock is open to every role of the database.
func LockTable(ctx context.Context, conn *pgx.Conn, table, mode string) (pgx.Tx, error) {
	if err := Create(ctx, conn, "SELECT to_regclass($1) IS NULL", table, "TABLE "+table+" ()"); err != nil {
		return nil, err
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		return nil, err
	}
	for _, statement := range []string{
		"SET LOCAL idle_in_transaction_session_timeout = 0", "LOCK TABLE " + table + " IN EXCLUSIVE MODE " + mode,
	} {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return nil, fmt.Errorf("lock the table %s: %w", table, err)
		}
	}
	return tx, nil
}

// Create creates the object name with CREATE definition, if missingQuery returns true for its name. It succeeds if another
// session creates the object at the same time.
func Create(ctx context.Context, conn *pgx.Conn, missingQuery, name, definition string) error {
	var missing bool
	if err := conn.QueryRow(ctx, missingQuery, name).Scan(&missing); err != nil || !missing {
		return err
	}
	_, err := conn.Exec(ctx, "CREATE "+definition)
	failed, refused := errors.AsType[*pgconn.PgError](err)
	if refused && slices.Contains([]string{"23505", "42P06", "42P07"}, failed.Code) { // unique_violation, duplicate_schema, duplicate_table
		return nil
	}
	if err != nil {
		return fmt.Errorf("create %s: %w", definition, err)
	}
	return nil
}
