package rest

import (
	"context"
	"log/slog"
	"time"

	"github.com/ironplane/ironplane/pkg/pg"
)

// sweepPause is how long expired answers may stay.
const sweepPause = 10 * time.Minute

// Sweep removes the kept answers that are a day old, from time to time, until ctx ends.
func Sweep(ctx context.Context, service string, db *pg.DB, log *slog.Logger) {
	tick := time.NewTicker(sweepPause)
	defer tick.Stop()
	for {
		if err := SweepOnce(ctx, db); err != nil && ctx.Err() == nil {
			log.Error("sweep kept answers", "service", service, "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// SweepOnce removes the kept answers that are a day old.
func SweepOnce(ctx context.Context, db *pg.DB) error {
	return db.Change(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("kept answers are no item of anybody's")
		_, err := tx.Exec(ctx, `DELETE FROM idempotency WHERE id IN (
			SELECT id FROM idempotency WHERE expires_at <= now() LIMIT 10000 FOR UPDATE SKIP LOCKED)`)
		return err
	})
}
