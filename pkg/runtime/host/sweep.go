package host

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// expired is what need not be kept any more, by the statement that finds the keys of a batch of it.
var expired = []struct{ label, table, key, condition string }{
	// As long as a request can be repeated.
	{"answers", "idempotency", "id", "WHERE expires_at <= now() LIMIT $1 FOR UPDATE SKIP LOCKED"},
	// A sender that is restored from a backup may give a message again.
	{"messages that were taken", "message_taken", "id", "WHERE at < now() - interval '90 days' LIMIT $1 FOR UPDATE SKIP LOCKED"},
	// The last one is that by which readers know their source again.
	{
		"changes that all have read",
		"change",
		"seq",
		"WHERE seq < (SELECT min(seq) FROM change_reader) AND at < now() - interval '7 days' ORDER BY seq LIMIT $1",
	},
}

// sweepBatch is how many rows are deleted in one transaction.
const sweepBatch = 10_000

// Sweep deletes from a service's schema what need not be kept any more. Readers of its changes that are no more hold up
// nothing.
func Sweep(ctx context.Context, db *pg.DB, readers ...string) error {
	failed := []error{noteReaders(ctx, db, readers)}
	for _, o := range expired {
		sql := fmt.Sprintf("DELETE FROM %[1]s WHERE %[2]s IN (SELECT %[2]s FROM %[1]s %[3]s)", o.table, o.key, o.condition)
		for deleted := int64(sweepBatch); deleted == sweepBatch; {
			err := db.InTx(ctx, func(tx *pg.Tx) error {
				tx.Unrecorded("nobody asks for it any more")
				done, err := tx.Exec(ctx, sql, sweepBatch)
				deleted = done.RowsAffected()
				return err
			})
			if err != nil {
				failed = append(failed, fmt.Errorf("delete %s: %w", o.label, err))
				break
			}
		}
	}
	return errors.Join(failed...)
}

func noteReaders(ctx context.Context, db *pg.DB, readers []string) error {
	err := db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("who reads is part of the program")
		if _, err := tx.Exec(ctx, "DELETE FROM change_reader WHERE name <> ALL ($1)", readers); err != nil {
			return err
		}
		_, err := tx.Exec(
			ctx,
			"INSERT INTO change_reader (name, seq) SELECT unnest($1::text[]), 0 ON CONFLICT DO NOTHING",
			slices.Sorted(slices.Values(readers)),
		)
		return err
	})
	if err != nil {
		return fmt.Errorf("note who reads: %w", err)
	}
	return nil
}
