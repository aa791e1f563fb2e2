package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// DeleteOld gives up deliveries that waited too long, and deletes expired secrets and deliveries that ended this many days
// ago.
func (d *Dispatcher) DeleteOld(ctx context.Context, days int) error {
	rows, err := d.db.Query(ctx, "SELECT id FROM webhook ORDER BY id")
	if err != nil {
		return fmt.Errorf("list webhooks: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("list webhooks: %w", err)
	}
	for _, id := range ids {
		err = errors.Join(err, d.giveUp(ctx, id))
	}
	for _, statement := range []string{
		"DELETE FROM webhook_delivery WHERE id IN (SELECT id FROM webhook_delivery " +
			"WHERE created_at < now() - make_interval(days => $1) AND status <> 'waiting' LIMIT $2)",
		"DELETE FROM webhook_delivery WHERE id IN (SELECT id FROM webhook_delivery d WHERE NOT EXISTS (SELECT FROM webhook w " +
			"WHERE w.id = d.webhook_id) AND $1::bigint > 0 LIMIT $2)",
		// The deliveries of a new event may not be committed yet.
		"DELETE FROM webhook_event WHERE id IN (SELECT id FROM webhook_event e " +
			"WHERE at < now() - interval '1 hour' AND $1::bigint > 0 " +
			"AND NOT EXISTS (SELECT FROM webhook_delivery d WHERE d.event_id = e.id) LIMIT $2)",
	} {
		err = errors.Join(err, d.deleteInBatches(ctx, statement, days))
	}
	return err
}

// deleteBatch is how many rows are deleted in one transaction.
const deleteBatch = 5000

// deleteInBatches runs a DELETE statement until it finds less than a full batch.
func (d *Dispatcher) deleteInBatches(ctx context.Context, sql string, days int) error {
	for deleted := int64(deleteBatch); deleted == deleteBatch; {
		err := d.db.InTx(ctx, func(tx *pg.Tx) error {
			tx.Unrecorded("the deletion of old deliveries is not recorded")
			done, err := tx.Exec(ctx, sql, days, deleteBatch)
			deleted = done.RowsAffected()
			return err
		})
		if err != nil {
			return fmt.Errorf("delete old deliveries: %w", err)
		}
	}
	return nil
}

// giveUp gives up deliveries of a webhook that waited too long or are too many, and deletes an expired old secret.
func (d *Dispatcher) giveUp(ctx context.Context, id int64) error {
	return d.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("deliveries are not recorded")
		if err := lockWebhooks(ctx, tx, id); err != nil {
			return err
		}
		if _, err := tx.Exec(
			ctx,
			"UPDATE webhook SET old_secret = NULL WHERE id = $1 AND old_secret IS NOT NULL AND old_secret_until <= now()",
			id,
		); err != nil {
			return fmt.Errorf("delete the old secret of webhook %d: %w", id, err)
		}
		rows, err := tx.Query(
			ctx,
			`UPDATE webhook_delivery SET status = 'failed', next_at = NULL, error = coalesce(error || '; ', '') || 'given up: it waited for three days, or too many deliveries waited'
			WHERE webhook_id = $1 AND status = 'waiting' AND (created_at < now() - $2::interval
				OR id <= (SELECT id FROM webhook_delivery WHERE webhook_id = $1 AND status = 'waiting' ORDER BY id DESC OFFSET $3 LIMIT 1)) RETURNING item`,
			id,
			deliveryTTL+time.Hour,
			maxWaiting,
		)
		if err != nil {
			return fmt.Errorf("give up deliveries: %w", err)
		}
		items, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || len(items) == 0 {
			return err
		}
		return releaseNext(ctx, tx, id, items...)
	})
}
