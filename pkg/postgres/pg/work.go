package pg

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ironplane/ironplane/pkg/postgres/pgerror"
)

// Tx is a unit of work: a transaction, the records of what it changed, and what is called once it is committed.
type Tx struct {
	tx          pgx.Tx
	records     []Record
	unrecorded  string
	afterCommit []func(context.Context) error
	wakes       []string

	Caller any // what a service found out of who calls, to be known once the caller's own key is gone
}

// AfterCommit runs fn after the commit and before the answer, to tell others of the change. An error does not undo
// anything: it makes the answer a fault.
func (tx *Tx) AfterCommit(fn func(context.Context) error) {
	tx.afterCommit = append(tx.afterCommit, fn)
}

// Wake wakes, once the unit of work is committed, those who wait for something of this service, in all processes. It is
// not sent by the database: a NOTIFY in a transaction holds a lock on the whole database while that commits.
func (tx *Tx) Wake(topic string) {
	if !slices.Contains(tx.wakes, topic) {
		tx.wakes = append(tx.wakes, topic)
	}
}

const (
	// maxAttempts bounds how often a unit of work runs that the database aborts for the sake of another one.
	maxAttempts = 4
	// retryInterval is how long an aborted unit of work waits before it runs again, doubled each time: one that ran at once
	// might take the locks again that the other one waits for.
	retryInterval = 10 * time.Millisecond
	// maxRestarts bounds how often it runs again because of a RestartAfter.
	maxRestarts = 1000
)

// RestartAfter, as the error of a unit of work, rolls it back, is called, and lets it run again: for what takes long, such
// as a request to another service, and of which it turned out only inside that it is needed.
type RestartAfter func(context.Context) error

func (RestartAfter) Error() string { return "the unit of work lacks something" }

// InTx runs fn as one unit of work: all of it and its records are committed, or none. Where the database ended it
// for the sake of another one (deadlock, serialization), or the session takes no changes, which another one may, it is run
// again, so fn changes nothing but the database.
func (db *DB) InTx(ctx context.Context, fn func(*Tx) error) error {
	aborted, restarts := 0, 0
	for {
		err := db.runOnce(ctx, fn)
		if prepare, ok := errors.AsType[RestartAfter](err); ok && restarts < maxRestarts {
			restarts++
			if err := prepare(ctx); err != nil {
				return err
			}
			continue
		}
		if aborted++; err == nil || !db.isRetryable(ctx, err) || aborted == maxAttempts {
			return err
		}
		interval := retryInterval << (aborted - 1)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(interval + rand.N(interval)): // jitter, so that two do not collide again
		}
	}
}

func (db *DB) runOnce(ctx context.Context, fn func(*Tx) error) error {
	inner, err := db.begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer rollback(ctx, inner)

	tx := &Tx{tx: inner}
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.writeRecords(ctx); err != nil {
		return err
	}
	// The commit and what comes after it are completed though the caller has left.
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	committed := inner.Commit(detached)
	if errors.Is(committed, pgx.ErrTxCommitRollback) {
		return fmt.Errorf("commit: %w", committed)
	}
	if committed == nil || maybeCommitted(committed) {
		db.notify(tx) // first: what follows may wait for what others do about it
	}
	var failed error
	for _, fn := range tx.afterCommit { // even where it is unknown whether the commit arrived
		failed = errors.Join(failed, fn(detached))
	}
	if maybeCommitted(committed) {
		return pgerror.Unavailable(
			"The database did not answer. What was asked for may have been done, or not.",
			fmt.Errorf("commit: %w", committed),
		)
	}
	if committed != nil {
		return fmt.Errorf("commit: %w", committed)
	}
	return failed
}

// notify wakes those who wait for what was committed.
func (db *DB) notify(tx *Tx) {
	if len(tx.records) > 0 {
		select {
		case db.recorded <- struct{}{}:
		default:
		}
	}
	for _, topic := range tx.wakes {
		db.wake(topic)
	}
}

// maybeCommitted tells whether a commit that failed may have been done.
func maybeCommitted(committed error) bool {
	_, refused := errors.AsType[*pgconn.PgError](committed)
	return committed != nil && (!refused || pgerror.IsDisconnected(committed))
}

// begin takes another connection where the one it got had ended, and forgets the others, which are as old.
func (db *DB) begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := db.pool.Begin(ctx)
	if pgerror.IsDisconnected(err) {
		db.pool.Reset()
		tx, err = db.pool.Begin(ctx)
	}
	return tx, err
}

// commitTimeout bounds the commit with what is called after it.
const commitTimeout = 15 * time.Second

// rollback undoes what is not committed.
func rollback(ctx context.Context, inner pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = inner.Rollback(ctx)
}
