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

// SkipChange lets the service go on behind changes of another one that it cannot apply, or give up a message of its own that
// its receiver cannot take. It needs a DB and a Box.
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

// ErrNotStopped says that the consumer has not stopped at a change that it is told to skip.
var ErrNotStopped = errors.New("nothing has stopped there")

// recordSkip leaves a record of changes that are skipped.
func recordSkip(_ context.Context, tx *pg.Tx, span events.Span) error {
	tx.Record(pg.Record{Kind: "event", Action: "skipped", Targets: []pg.Target{span.Target()}})
	return nil
}

// skip lets the consumer whose cursor is in db go on behind a span of changes, at one of which it stopped. record leaves
// a record of that in the same unit of work.
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
			return fmt.Errorf("%s had changes up to %d when it was asked last", span.Source, newest)
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

// giveUp deletes a message that is on its way, and leaves a record.
func giveUp(ctx context.Context, sender string, db *pg.DB, span events.Span) error {
	if span.Source != sender {
		return fmt.Errorf("skip %s: %w: a message is given up by its sender, and this is %s", span, ErrNotStopped, sender)
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
