// Package pg gives services access to Postgres: units of work that record every change, and items that are read from views.
package pg

import (
	"context"
	"embed"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ironplane/ironplane/pkg/postgres/pgerror"
)

// Migrations create the tables that this package writes.
//
//go:embed migrations/*.sql
var Migrations embed.FS

// Querier runs statements that read. DB and Tx implement it.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// DB is a service's schema, used as the service's own role.
type DB struct {
	pool        *pgxpool.Pool
	recorded    chan struct{}
	isRetryable func(context.Context, error) bool
	wake        func(topic string)
}

// New returns a DB on a pool that package pool opened. isRetryable reports whether a unit of work that failed with this
// error may succeed if it is run again.
func New(pool *pgxpool.Pool, isRetryable func(context.Context, error) bool) *DB {
	return &DB{pool, make(chan struct{}, 1), isRetryable, func(string) {}}
}

// OnWake sets the function that is called with the topics of Tx.Wake after a commit. Call it before the DB is used.
func (db *DB) OnWake(wake func(topic string)) { db.wake = wake }

// Recorded returns a channel that receives a value after this process commits units of work with records. Several commits
// may send one value.
func (db *DB) Recorded() <-chan struct{} { return db.recorded }

// Query runs a statement that reads, outside of any transaction.
func (db *DB) Query(ctx context.Context, sql string, args ...any) (rows pgx.Rows, err error) {
	err = db.acquire(ctx, func() error {
		rows, err = db.pool.Query(ctx, sql, args...)
		return err
	})
	if errors.Is(err, pgerror.ErrBusy) {
		rows = failedRows{rows, err}
	}
	return rows, err
}

// QueryRow runs a statement that reads one row, outside of any transaction.
func (db *DB) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, _ := db.Query(ctx, sql, args...)
	return row{rows}
}

// Parse checks that the tables and columns of a statement exist, without running it.
func (db *DB) Parse(ctx context.Context, sql string) error {
	return db.acquire(ctx, func() error {
		return db.pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
			_, err := c.Conn().Prepare(ctx, "", sql)
			return err
		})
	})
}
