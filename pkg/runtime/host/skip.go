package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/service"
)

// SkipChange moves a consumer past changes of another service that it cannot apply, or deletes a message of this service
// that its receiver cannot accept. It needs a DB and a Box.
func SkipChange(ctx context.Context, d service.Definition, deps service.Deps, span events.Span) error {
	if span.Message != "" {
		return giveUp(ctx, d.Name, deps.DB, span)
	}
	record := recordSkip
	if d.RecordSkip != nil && span.Consumer == "" {
		record = func(ctx context.Context, tx *pg.Tx, span events.Span) error {
			return d.RecordSkip(ctx, deps, tx, span)
		}
	}
	return skip(ctx, deps.DB, span, record)
}

// ErrNotStopped is the error if the consumer has not stopped at the change to skip, or the message does not exist.
var ErrNotStopped = errors.New("no consumer has stopped at that change, and no such message waits")

// recordSkip records the skipped changes.
func recordSkip(_ context.Context, tx *pg.Tx, span events.Span) error {
	tx.Record(pg.Record{Kind: "event", Action: "skipped", Targets: []pg.Target{span.Target()}})
	return nil
}

// skip moves the consumer past a span of changes that includes the one at which it stopped. record adds a record in the same
// unit of work.
func skip(ctx context.Context, db *pg.DB, span events.Span, record func(context.Context, *pg.Tx, events.Span) error) error {
	err := db.InTx(ctx, func(tx *pg.Tx) error {
		var at, stopped, newest int64
		err := tx.QueryRow(ctx, "SELECT seq, stopped_at, coalesce(newest, stopped_at) FROM consumer "+
			"WHERE source = $1 AND name = $2 AND stopped_at IS NOT NULL FOR UPDATE", span.Source, span.Consumer).
			Scan(&at, &stopped, &newest)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return ErrNotStopped
		case err != nil:
			return err
		case stopped != span.Last && (stopped < span.First || stopped > span.Last || span.First > at+1):
			return ErrNotStopped
		case span.Last > newest:
			return fmt.Errorf("the last known change of %s is %d", span.Source, newest)
		}
		if _, err := tx.Exec(
			ctx,
			"UPDATE consumer SET seq = $3, stopped_at = NULL WHERE source = $1 AND name = $2",
			span.Source,
			span.Consumer,
			span.Last,
		); err != nil {
			return err
		}
		return record(ctx, tx, span)
	})
	if err != nil {
		return fmt.Errorf("skip %s: %w", span, err)
	}
	return nil
}

// giveUp deletes a message that is not received yet, and records that.
func giveUp(ctx context.Context, sender string, db *pg.DB, span events.Span) error {
	if span.Source != sender {
		return fmt.Errorf("skip %s: %w: only its sender can give up a message, and this service is %s", span, ErrNotStopped, sender)
	}
	err := db.InTx(ctx, func(tx *pg.Tx) error {
		err := tx.QueryRow(ctx, "DELETE FROM message WHERE id = $1 RETURNING n", span.Message).Scan(&span.Last)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrNotStopped
		}
		if err != nil {
			return err
		}
		return recordSkip(ctx, tx, span)
	})
	if err != nil {
		return fmt.Errorf("skip %s: %w", span, err)
	}
	return nil
}
