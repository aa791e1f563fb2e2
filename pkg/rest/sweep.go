package rest

import (
	"context"
	"fmt"

	"github.com/ironplane/ironplane/pkg/pg"
)

// swept is how many kept answers are removed in one transaction.
const swept = 10_000

// Sweep removes the kept answers that are a day old.
func Sweep(ctx context.Context, db *pg.DB) error {
	for {
		gone, err := sweep(ctx, db)
		if err != nil || gone < swept {
			return err
		}
	}
}

func sweep(ctx context.Context, db *pg.DB) (gone int64, err error) {
	err = db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("kept answers are no item of anybody's")
		done, err := tx.Exec(ctx, `DELETE FROM idempotency WHERE id IN (
			SELECT id FROM idempotency WHERE expires_at <= now() LIMIT $1 FOR UPDATE SKIP LOCKED)`, swept)
		if err != nil {
			return fmt.Errorf("remove kept answers: %w", err)
		}
		gone = done.RowsAffected()
		return nil
	})
	return gone, err
}
