package events

import (
	"context"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// noteProgress stores how far a reader has read, so that older changes can be deleted.
func noteProgress(ctx context.Context, db *pg.DB, reader string, seq int64) error {
	return wrap("store how far "+reader+" has read", db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("reading changes no item")
		_, err := tx.Exec(ctx, "UPDATE change_reader SET seq = $2 WHERE name = $1 AND seq < $2", reader, seq)
		return err
	}))
}
