package rest

import (
	"context"

	"github.com/ironplane/ironplane/pkg/pg"
)

// Sweep removes the kept answers that are a day old.
func Sweep(ctx context.Context, db *pg.DB) error {
	return db.Change(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("kept answers are no item of anybody's")
		_, err := tx.Exec(ctx, `DELETE FROM idempotency WHERE id IN (
			SELECT id FROM idempotency WHERE expires_at <= now() LIMIT 10000 FOR UPDATE SKIP LOCKED)`)
		return err
	})
}
