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
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ironplane/ironplane/pkg/postgres/pgerror"
)

// Tx is a unit of work: a transaction, the records of its changes, and functions that run after its commit. BEGIN travels with
// the first statement, which must be a single command, and COMMIT with the records, so that each costs no round trip of its own.
type Tx struct {
	db          *DB
	conn        *pgxpool.Conn
	ahead       []command // sent together with the next statement
	records     []Record
	unrecorded  string
	afterCommit []func(context.Context) error
	wakes       []string
	dryRun      *dryRun // nil: it commits

	Caller any // set by the service: facts about the caller that outlive the caller's own key
}

// AfterCommit runs fn after the commit and before the response, to notify others of the change. An error undoes nothing: the
// caller gets an internal error.
func (tx *Tx) AfterCommit(fn func(context.Context) error) {
	tx.afterCommit = append(tx.afterCommit, fn)
}

// Wake wakes the listeners of a topic of this service, in all processes, after the commit. It does not use NOTIFY: within a
// transaction, NOTIFY holds a lock on the whole database during the commit.
func (tx *Tx) Wake(topic string) {
	if !slices.Contains(tx.wakes, topic) {
		tx.wakes = append(tx.wakes, topic)
	}
}

const (
	// maxAttempts bounds how often a unit of work runs if the database aborts it because of concurrent ones.
	maxAttempts = 4
	// retryInterval is the pause before the second attempt. It doubles each time. Without a pause, the retry could take the
	// locks that the other transaction waits for.
	retryInterval = 10 * time.Millisecond
	// maxRestarts bounds how often a unit of work runs again after RestartAfter.
	maxRestarts = 1000
)

// RestartAfter is an error of a unit of work. InTx rolls back, calls it and runs the unit of work again. Use it for slow
// preparations, such as a request to another service, whose need is known only within the transaction.
type RestartAfter func(context.Context) error

func (RestartAfter) Error() string { return "the unit of work needs a preparation and must run again" }

// InTx runs fn as one unit of work: its changes and records are all committed, or none. It runs fn again after a deadlock or
// a serialization failure, and if the session was read-only but a new session is not. So fn must change nothing but the
// database.
func (db *DB) InTx(ctx context.Context, fn func(*Tx) error) error { return db.run(ctx, nil, fn) }

// DryRun runs fn as InTx does, and then rolls it back: nothing is changed or recorded, nobody is woken, and the functions of
// AfterCommit do not run. Its error is the one that InTx would return for the same work.
func (db *DB) DryRun(ctx context.Context, fn func(*Tx) error) error {
	return db.run(ctx, &dryRun{asked: map[string]bool{}}, fn)
}

// dryRun outlives the attempts of one call of DryRun.
type dryRun struct{ asked map[string]bool }

// IsDryRun reports whether the unit of work is rolled back in any case.
func (tx *Tx) IsDryRun() bool { return tx.dryRun != nil }

// AskOnce calls ask between two attempts of a dry run, once for each question. Use it for a question to another service whose
// effects a rollback would not undo.
func (tx *Tx) AskOnce(question string, ask func(context.Context) error) error {
	asked := tx.dryRun.asked
	if asked[question] {
		return nil
	}
	return RestartAfter(func(ctx context.Context) error {
		asked[question] = true
		return ask(ctx)
	})
}

// run calls runOnce until it succeeds, fails for good, or has been tried often enough.
func (db *DB) run(ctx context.Context, dry *dryRun, fn func(*Tx) error) error {
	aborted, restarts := 0, 0
	for {
		err := db.runOnce(ctx, dry, fn)
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
		case <-time.After(interval + rand.N(interval)): // jitter keeps two transactions from colliding again
		}
	}
}

// runOnce is one attempt of InTx or DryRun.
func (db *DB) runOnce(ctx context.Context, dry *dryRun, fn func(*Tx) error) error {
	conn, err := db.connect(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	tx := &Tx{db: db, conn: conn, dryRun: dry}
	defer tx.release(ctx)
	tx.sendAhead(beginSQL)
	if err := fn(tx); err != nil || dry != nil {
		return err
	}
	record, err := tx.recordStatement(ctx)
	if err != nil {
		return err
	}
	// The commit and its hooks complete even if the caller has left.
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	committed := tx.commit(detached, record)
	if isRefused(committed) {
		return committed
	}
	db.notify(tx) // first, because the hooks may wait for what listeners do
	var failed error
	for _, fn := range tx.afterCommit { // also if it is unknown whether the commit succeeded
		failed = errors.Join(failed, fn(detached))
	}
	if committed != nil {
		return pgerror.Unavailable("The database did not answer. The change may or may not have been made.", committed)
	}
	return failed
}

// commit writes the records and commits, in one round trip. If the record's statement fails, nothing is committed.
func (tx *Tx) commit(ctx context.Context, record *command) error {
	if record != nil {
		tx.ahead = append(tx.ahead, *record)
	} else if len(tx.ahead) == 1 && tx.ahead[0].sql == beginSQL {
		return nil // nothing was sent
	}
	tag, err := tx.Exec(ctx, commitSQL)
	if err == nil && tag.String() == "ROLLBACK" {
		err = pgx.ErrTxCommitRollback
	}
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// isRefused reports whether a commit did certainly not take effect.
func isRefused(committed error) bool {
	_, refused := errors.AsType[*pgconn.PgError](committed)
	return refused && !pgerror.IsDisconnected(committed) || errors.Is(committed, pgx.ErrTxCommitRollback)
}

// notify wakes the listeners of what was committed.
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

// connect acquires a connection of the pool.
func (db *DB) connect(ctx context.Context) (conn *pgxpool.Conn, err error) {
	err = db.acquire(ctx, func() error {
		conn, err = db.pool.Acquire(ctx)
		return err
	})
	return conn, err
}

// commitTimeout bounds the commit together with the functions of AfterCommit.
const commitTimeout = 15 * time.Second

// release rolls back unless the transaction has ended, and returns the connection to the pool.
func (tx *Tx) release(ctx context.Context) {
	defer tx.conn.Release() // it closes a connection whose transaction has not ended
	if tx.conn.Conn().PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, _ = tx.conn.Exec(ctx, "ROLLBACK")
}
