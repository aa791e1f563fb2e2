package host

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// expired lists the rows to delete, with the condition that selects a batch of their keys.
var expired = []struct{ label, table, key, condition string }{
	// A stored response is kept for as long as its request can be repeated.
	{"answers", "idempotency", "id", "WHERE expires_at <= now() LIMIT $1 FOR UPDATE SKIP LOCKED"},
	// A sender that is restored from a backup may send a message again.
	{"received messages", "message_taken", "id", "WHERE at < now() - interval '90 days' LIMIT $1 FOR UPDATE SKIP LOCKED"},
	// The newest change remains: readers recognize the schema's history by it.
	{
		"changes that all readers have read",
		"change",
		"seq",
		"WHERE seq < (SELECT min(seq) FROM change_reader) AND at < now() - interval '7 days' ORDER BY seq LIMIT $1",
	},
}

// sweepBatch is how many rows are deleted in one transaction.
const sweepBatch = 10_000

// Sweep deletes expired rows from a service's schema. It first removes readers of changes that no longer exist, so that they
// delay nothing.
func Sweep(ctx context.Context, db *pg.DB, readers ...string) error {
	failed := []error{noteReaders(ctx, db, readers)}
	for _, o := range expired {
		sql := fmt.Sprintf("DELETE FROM %[1]s WHERE %[2]s IN (SELECT %[2]s FROM %[1]s %[3]s)", o.table, o.key, o.condition)
		for deleted := int64(sweepBatch); deleted == sweepBatch; {
			err := db.InTx(ctx, func(tx *pg.Tx) error {
				tx.Unrecorded("the rows have expired")
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
		tx.Unrecorded("the readers are part of the program")
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
		return fmt.Errorf("update the readers of changes: %w", err)
	}
	return nil
}
