package pg

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ironplane/ironplane/pkg/postgres/pgerror"
)

const (
	// fullTimeout is how long work waits while the server refuses further connections. A connection of the own pool may
	// become free, or another process may close one.
	fullTimeout = 5 * time.Second
	// fullInterval is the pause between two attempts.
	fullInterval = 50 * time.Millisecond
)

// acquire calls do, which acquires a connection of the pool, again while the server refuses further connections. It returns
// pgerror.ErrBusy if the pool has no free connection in time.
func (db *DB) acquire(ctx context.Context, do func() error) error {
	var giveUp <-chan time.Time
	for {
		err := do()
		if ctx.Err() == nil && db.isBusy(err) {
			return pgerror.ErrBusy
		}
		if !pgerror.IsFull(err) {
			return pgerror.ExplainConnect(err)
		}
		if giveUp == nil {
			timer := time.NewTimer(fullTimeout)
			defer timer.Stop()
			giveUp = timer.C
		}
		select {
		case <-time.After(fullInterval):
		case <-giveUp:
			return err
		case <-ctx.Done():
			return err
		}
	}
}

// isBusy reports whether an attempt to acquire a connection failed because all of the pool's connections were in use.
func (db *DB) isBusy(err error) bool {
	if !errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	pool := db.pool.Stat()
	return !connecting && pool.AcquiredConns() == pool.MaxConns()
}

// row is the first of some rows.
type row struct{ rows pgx.Rows }

// Scan implements pgx.Row.
func (r row) Scan(dest ...any) error {
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}

// failedRows are rows that could not be read because of err.
type failedRows struct {
	pgx.Rows
	err error
}

// Err implements pgx.Rows.
func (r failedRows) Err() error { return r.err }
