package pg

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ironplane/ironplane/pkg/principal"
)

// Tx is a unit of work: a transaction, the record of what it changed, and what must be told once it is committed.
type Tx struct {
	tx         pgx.Tx
	record     *Change
	unrecorded string
	told       []func(context.Context) error
}

// Change is what a unit of work did, as the log and the other services will hear of it.
type Change struct {
	Type    string // what happened, such as port-speed.created
	Targets []Target
	Before  any // nil where it was made just now; an object, which shows no secrets: see secret.Marked
	After   any // nil where it is gone
}

// Target is a thing that was changed.
type Target struct {
	Type string `json:"type"` // its collection's path without the first slash, such as port-speed
	ID   int64  `json:"id"`
	Name string `json:"name"`
	// Version is that of the row once it was changed, 0 where nobody needs it.
	Version int64 `json:"version,omitempty"`
}

// Record notes what the unit of work changes. It is called exactly once; the record commits with the change.
func (tx *Tx) Record(c Change) {
	if tx.record != nil {
		panic("pg: a second record in one unit of work: " + c.Type)
	}
	tx.record = &c
}

// Unrecorded says why this unit of work has nothing to record, unless something in it has.
func (tx *Tx) Unrecorded(reason string) { tx.unrecorded = reason }

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

// InTx runs fn as one unit of work: all of it and its record are committed, or none. Where the database ended it
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
	if err := tx.writeRecord(ctx); err != nil {
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
	if tx.record != nil {
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

func (tx *Tx) writeRecord(ctx context.Context) error {
	if tx.record == nil {
		if tx.unrecorded == "" {
			return errors.New("a unit of work recorded nothing and gave no reason")
		}
		return nil
	}
	before, err := document(tx.record.Before)
	if err != nil {
		return err
	}
	after, err := document(tx.record.After)
	if err != nil {
		return err
	}
	targets, err := json.Marshal(append([]Target{}, tx.record.Targets...))
	if err != nil {
		return fmt.Errorf("encode targets: %w", err)
	}
	call := principal.From(ctx)
	var actor struct {
		url, name *string
		key       *int64
		ip        *netip.Addr
	}
	if p := call.Principal; p != nil {
		url := p.Owner.URL()
		actor.url, actor.name, actor.key = &url, &p.Name, &p.KeyID
	}
	if call.IP.IsValid() {
		actor.ip = &call.IP
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO change (type, targets, before, after, actor_url, actor_name, actor_key, ip, request_id)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, nullif($9, ''))`,
		tx.record.Type, targets, before, after, actor.url, actor.name, actor.key, actor.ip, call.RequestID)
	if err != nil {
		return fmt.Errorf("record %s: %w", tx.record.Type, err)
	}
	return nil
}

func document(v any) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode a change: %w", err)
	}
	return text, nil
}
