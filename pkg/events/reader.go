package events

import (
	"context"
	"fmt"
	"slices"

	"github.com/ironplane/ironplane/pkg/pg"
)

// Keep deletes the changes that all readers have read, days after they were made, but the last one, by which readers know
// their source again. Readers that are no more hold up nothing.
func Keep(ctx context.Context, db *pg.DB, readers ...string) error {
	if err := db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("who reads is part of the program")
		if _, err := tx.Exec(ctx, "DELETE FROM change_reader WHERE name <> ALL ($1)", readers); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO change_reader (name, seq) SELECT unnest($1::text[]), 0 ON CONFLICT DO NOTHING", slices.Sorted(slices.Values(readers)))
		return err
	}); err != nil {
		return fmt.Errorf("note who reads: %w", err)
	}
	for {
		gone, err := deleteRead(ctx, db)
		if err != nil || gone < deleteBatch {
			return err
		}
	}
}

// deleteBatch is how many changes are deleted in one transaction.
const deleteBatch = 10_000

func deleteRead(ctx context.Context, db *pg.DB) (gone int64, err error) {
	err = db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("what is deleted is in the log")
		done, err := tx.Exec(ctx, `DELETE FROM change WHERE seq IN (
			SELECT seq FROM change WHERE seq < (SELECT min(seq) FROM change_reader) AND at < now() - $1::interval ORDER BY seq LIMIT $2)`, kept, deleteBatch)
		gone = done.RowsAffected()
		return err
	})
	return gone, wrap("delete changes that all have read", err)
}

// progress notes how far a reader has read.
func progress(ctx context.Context, db *pg.DB, reader string, seq int64) error {
	return wrap("note how far "+reader+" has read", db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("what is read is not changed")
		_, err := tx.Exec(ctx, "UPDATE change_reader SET seq = $2 WHERE name = $1 AND seq < $2", reader, seq)
		return err
	}))
}
