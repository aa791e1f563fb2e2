// Package pg is how services use Postgres: a pool, the unit of work that records every change, a small mapper for plain
// tables, and the translation of constraints into errors that a caller understands.
package pg

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ironplane/ironplane/pkg/tracing"
)

// Migrations are those of what this package writes.
//
//go:embed migrations/*.sql
var Migrations embed.FS

// Querier is what reads: a DB or a Tx.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// DB is a service's pool of connections, as the service's own role, to its own schema.
type DB struct {
	pool     *pgxpool.Pool
	recorded chan struct{}
}

// limits are what the server itself stops, should a deadline here fail to, in milliseconds, and what it leaves.
var limits = map[string]string{
	"statement_timeout": "60000",
	"lock_timeout":      "10000",
	// Who waits for the locks of a process that stands still gets them before he gives up.
	"idle_in_transaction_session_timeout": "5000",
	// Of a page deep inside a list the planner thinks that a merge join begins there. It begins at the first row.
	"enable_mergejoin": "off",
	// It knows little of what boxes hold. Where it takes a few rows for many, to start workers or to compile takes longer
	// than all else.
	"max_parallel_workers_per_gather": "0",
	"jit":                             "off",
}

// Open connects to url (postgres://…?search_path=network,ext) with at most connections connections, and returns
// once the first one stands, for which a database that is starting has a minute.
func Open(ctx context.Context, url string, connections int) (*DB, error) {
	if err := checkURL(url); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("read the database URL: %w", err)
	}
	config.MaxConns = int32(connections)
	config.MaxConnIdleTime = 5 * time.Minute
	config.ConnConfig.ConnectTimeout = 10 * time.Second
	if provider := tracing.Provider(); provider != nil {
		config.ConnConfig.Tracer = otelpgx.NewTracer(otelpgx.WithTracerProvider(provider))
	}
	for name, value := range limits {
		config.ConnConfig.RuntimeParams[name] = value
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the database pool: %w", err)
	}
	if err := awaitStarted(ctx, pool); err != nil {
		pool.Close()
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	return &DB{pool, make(chan struct{}, 1)}, nil
}

// awaitStarted waits for a database that says that it is starting, which takes longer after a crash.
func awaitStarted(ctx context.Context, pool *pgxpool.Pool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := pool.Ping(ctx)
		if starting, ok := errors.AsType[*pgconn.PgError](err); !ok || starting.Code != "57P03" {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Connect makes a connection besides the pool's, without the limits that are for requests.
func (db *DB) Connect(ctx context.Context) (*pgx.Conn, error) {
	config := db.pool.Config().ConnConfig.Copy()
	for name := range limits {
		delete(config.RuntimeParams, name)
	}
	return pgx.ConnectConfig(ctx, config)
}

// Close waits for connections that are in use and closes all.
func (db *DB) Close() { db.pool.Close() }

// Ping tells whether the database answers.
func (db *DB) Ping(ctx context.Context) error { return db.pool.Ping(ctx) }

// Recorded tells one who listens that a unit of work was committed with a record, by this process, since it was last
// told.
func (db *DB) Recorded() <-chan struct{} { return db.recorded }

// Query runs a statement that reads, outside of any transaction.
func (db *DB) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return db.pool.Query(ctx, sql, args...)
}

// QueryRow runs a statement that reads one row, outside of any transaction.
func (db *DB) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return db.pool.QueryRow(ctx, sql, args...)
}

// Savepoint runs fn so that its failure leaves the rest of the transaction usable. The error is fn's own.
func (tx *Tx) Savepoint(ctx context.Context, fn func() error) error {
	if _, err := tx.Exec(ctx, "SAVEPOINT attempt"); err != nil {
		return fmt.Errorf("set savepoint: %w", err)
	}
	failed := fn()
	end := "RELEASE SAVEPOINT attempt"
	if failed != nil {
		end = "ROLLBACK TO SAVEPOINT attempt"
	}
	if _, err := tx.Exec(ctx, end); err != nil {
		return fmt.Errorf("end savepoint: %w", err)
	}
	return failed
}

// Exec runs a statement that changes something. There is no Exec outside of a unit of work.
func (tx *Tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return tx.tx.Exec(ctx, sql, args...)
}

// Query runs a statement in the transaction.
func (tx *Tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return tx.tx.Query(ctx, sql, args...)
}

// QueryRow runs a statement of one row in the transaction.
func (tx *Tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return tx.tx.QueryRow(ctx, sql, args...)
}
