package events

import (
	"context"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// noteProgress notes how far a reader has read.
func noteProgress(ctx context.Context, db *pg.DB, reader string, seq int64) error {
	return wrap("note how far "+reader+" has read", db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("what is read is not changed")
		_, err := tx.Exec(ctx, "UPDATE change_reader SET seq = $2 WHERE name = $1 AND seq < $2", reader, seq)
		return err
	}))
}
