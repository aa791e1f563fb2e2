// Package migrate brings a service's schema up to date: by its migrations, each done once, and by its definitions of views and
// trigger functions, which are applied behind them whenever they have changed.
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

// MigrationSet brings a schema up to date: in the order of their numbers, of which each is there once, by what is in the folders
// "migrations" of all Files, and then by what is in their folders "schema/functions" and "schema/views".
type MigrationSet struct {
	Table string // of the migrations that are done
	Files []fs.FS
}

// migrateTimeout is how long one who migrates waits for another one.
const migrateTimeout = 10 * time.Minute

// Migrate brings the schema up to date, by all migrations of the first, then of the next, and says to the log what it did. Any
// number of processes may call it at once.
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

// ErrOlder says that a schema lacks migrations, or has views and functions of before.
var ErrOlder = errors.New("the schema is older than this program")

// Check fails where the schema lacks a migration, or a view or function as it is now. One that has more migrations is that of a
// newer version, and will do: what newer migrations change leaves the older program working.
func Check(ctx context.Context, db *pg.DB, all ...MigrationSet) error {
	for _, m := range all {
		lacks, err := m.missingMigrations(ctx, db)
		if err != nil {
			return fmt.Errorf("look at the schema's migrations: %w", err)
		}
		if len(lacks) > 0 {
			return fmt.Errorf("%w, which needs its migrations %s: run migrate first", ErrOlder, strings.Join(lacks, ", "))
		}
		if _, err := m.verifyChecksums(ctx, db); err != nil {
			return err
		}
		due, err := m.dueFiles(ctx, db)
		if err != nil {
			return err
		}
		if len(due) > 0 {
			return fmt.Errorf("%w, which needs %s: run migrate first", ErrOlder, strings.Join(due, ", "))
		}
	}
	return nil
}

// isUpToDate tells whether all migrations are done and noted, and views and functions as they are now, as at most starts, which then
// need no lock and no connection
// besides. What is wrong is for who has the lock to say: another process may be at it.
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

// folders are the folders "migrations" of several file systems, as one.
type folders []fs.FS

func (f folders) Open(name string) (fs.File, error) {
	for _, files := range f {
		if file, err := files.Open("migrations/" + name); !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// Glob makes it an fs.GlobFS.
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

// missingMigrations are the files that are not done.
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
		if before == 0 { // nobody has used it yet
			level = slog.LevelInfo
		}
		log.Log(
			ctx,
			level,
			"the schema is migrated",
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

// LockTable begins a transaction that holds a table, which it makes, until its end, or the connection's. With
// the mode NOWAIT it fails, where another one holds it, with lock_not_available. The table is in the locker's own schema,
// which no other role may use; an advisory lock could be taken by every role of the database.
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

// Create makes what a query about a name tells is not there. Another one may be doing so at the same time.
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
