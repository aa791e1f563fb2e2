package pg

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Tx is a unit of work: a transaction, the records of what it changed, and what must be told once it is committed.
type Tx struct {
	tx         pgx.Tx
	records    []Record
	unrecorded string
	told       []func(context.Context) error
}

// AfterCommit runs fn after the commit and before the answer, to tell others of the change. An error does not undo
// anything: it makes the answer a fault.
func (tx *Tx) AfterCommit(fn func(context.Context) error) { tx.told = append(tx.told, fn) }

const (
	// attempts bounds how often a unit of work starts again that lost against another one.
	attempts = 4
	// letWin is how long who lost leaves the winner alone before it starts again, the first time, doubled each time: what
	// the winner waited for is free now, and who started at once might take it away from it again.
	letWin = 10 * time.Millisecond
	// preparations bounds how often it starts again once it has got what it lacked.
	preparations = 1000
)

// RestartAfter, as the error of a unit of work, says what has to be done outside of it before it is run again: what takes
// long, and of which it turned out only here that it is needed. Each time that it is done, less is lacking.
type RestartAfter func(context.Context) error

func (RestartAfter) Error() string { return "the unit of work lacks something" }

// InTx runs fn as one unit of work: all of it and its records are committed, or none. Where the database ended it
// for the sake of another one (deadlock, serialization), it is run again, so fn changes nothing but the database.
func (db *DB) InTx(ctx context.Context, fn func(*Tx) error) error {
	lost, prepared := 0, 0
	for {
		err := db.inTx(ctx, fn)
		if prepare, ok := errors.AsType[RestartAfter](err); ok && prepared < preparations {
			prepared++
			if err := prepare(ctx); err != nil {
				return err
			}
			continue
		}
		if lost++; !lostToAnother(err) || lost == attempts {
			return err
		}
		pause := letWin << (lost - 1)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause + rand.N(pause)): // two who lost do not meet again
		}
	}
}

func lostToAnother(err error) bool {
	failed, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (failed.Code == "40001" || failed.Code == "40P01")
}

func (db *DB) inTx(ctx context.Context, fn func(*Tx) error) error {
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
	// Once the commit is on its way it is seen through, and told of, though the caller went away.
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), sealTime)
	defer cancel()
	committed := inner.Commit(detached)
	if errors.Is(committed, pgx.ErrTxCommitRollback) {
		return fmt.Errorf("commit: %w", committed)
	}
	var told error
	for _, tell := range tx.told { // even where it is unknown whether the commit arrived
		told = errors.Join(told, tell(detached))
	}
	if unsure(committed) {
		return away("The database did not answer. What was asked for may have been done, or not.", fmt.Errorf("commit: %w", committed))
	}
	if committed != nil {
		return fmt.Errorf("commit: %w", committed)
	}
	if len(tx.records) > 0 {
		select {
		case db.recorded <- struct{}{}:
		default:
		}
	}
	return told
}

// unsure tells whether a commit may have been done though it failed.
func unsure(committed error) bool {
	_, refused := errors.AsType[*pgconn.PgError](committed)
	return committed != nil && (!refused || disconnected(committed))
}

// begin takes another connection where the one it got had ended, and forgets the others, which are as old.
func (db *DB) begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := db.pool.Begin(ctx)
	if disconnected(err) {
		db.pool.Reset()
		tx, err = db.pool.Begin(ctx)
	}
	return tx, err
}

// sealTime is how long the commit and telling others of it may take. That others cannot be told may take a wait.
const sealTime = 15 * time.Second

// rollback undoes what is not committed.
func rollback(ctx context.Context, inner pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = inner.Rollback(ctx)
}
