// Package pg is how services use Postgres: the unit of work that records every change, and items of a view.
package pg

import (
	"context"
	"embed"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
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

// DB is a service's schema, as the service's own role.
type DB struct {
	pool        *pgxpool.Pool
	recorded    chan struct{}
	isRetryable func(context.Context, error) bool
	wake        func(topic string)
}

// New makes a DB of a pool that package pool opened. again tells, of a unit of work that failed, whether it may do better when
// it is run again.
func New(pool *pgxpool.Pool, isRetryable func(context.Context, error) bool) *DB {
	return &DB{pool, make(chan struct{}, 1), isRetryable, func(string) {}}
}

// OnWake has wake called with what units of work woke others for, once they are committed. It is for who starts the
// service, before that uses the DB.
func (db *DB) OnWake(wake func(topic string)) { db.wake = wake }

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

// Parse has Postgres look up the tables and columns that a statement names, without running it.
func (db *DB) Parse(ctx context.Context, sql string) error {
	return db.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		_, err := c.Conn().Prepare(ctx, "", sql)
		return err
	})
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
