package webhook

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// suspend delays deliveries to a webhook. Callers see the reason in the webhook.
func (d *Dispatcher) suspend(ctx context.Context, id int64, interval time.Duration, why string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dbTimeout)
	defer cancel()
	return d.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("deliveries are not recorded")
		tx.Wake(WakeTopic)
		_, err := tx.Exec(ctx, "UPDATE webhook SET resting = $2, paused_until = now() + $3::interval WHERE id = $1", id, why, interval)
		return err
	})
}

// storeOutcomes stores the outcomes of a batch, and releases the next events of items whose delivery ended.
func (d *Dispatcher) storeOutcomes(ctx context.Context, r receiver, all []delivery) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dbTimeout)
	defer cancel()
	return d.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("deliveries are not recorded")
		if err := lockWebhooks(ctx, tx, r.id); err != nil {
			return err
		}
		var ended []string
		isReachable, isDisabled, interval := false, false, time.Duration(0)
		for i := range all {
			one := &all[i]
			status, next := one.nextStatus()
			if next != nil {
				tx.Wake(WakeTopic)
			}
			if status != "waiting" {
				ended = append(ended, one.item)
			}
			isReachable, isDisabled, interval = isReachable || !one.outcome.tried ||
				one.outcome.delivered(), isDisabled ||
				one.outcome.status == http.StatusGone, max(
				interval,
				one.outcome.retryAfter,
			)
			_, err := tx.Exec(
				ctx,
				`UPDATE webhook_delivery SET status = $2, attempts = $3, next_at = now() + $4::interval, tried_at = now(), duration = $5,
				answer_status = nullif($6::bigint, 0), answer = nullif($7, ''), error = nullif($8, '') WHERE id = $1 AND status = 'waiting'`,
				one.id,
				status,
				one.attempts,
				next,
				one.outcome.duration.Milliseconds(),
				one.outcome.status,
				one.outcome.answer,
				one.outcome.reason,
			)
			if err != nil {
				return fmt.Errorf("store the outcome of delivery %d: %w", one.id, err)
			}
		}
		if err := releaseNext(ctx, tx, r.id, ended...); err != nil {
			return err
		}
		failures := 0
		if !isReachable {
			failures = r.failures + 1
			interval = max(interval, min(time.Second<<min(failures-1, 10), maxBackoff))
		}
		if failures > 0 || r.failures > 0 || interval > 0 {
			tx.Wake(WakeTopic)
			if _, err := tx.Exec(
				ctx,
				"UPDATE webhook SET failures = $2, resting = CASE WHEN $3::interval > '0' THEN 'the receiver failed' END, paused_until = now() "+
					"+ nullif($3::interval, '0') WHERE id = $1",
				r.id,
				failures,
				interval,
			); err != nil {
				return fmt.Errorf("store the failures of webhook %d: %w", r.id, err)
			}
		}
		if isDisabled {
			return disableWebhook(ctx, tx, r.id)
		}
		return nil
	})
}

// nextStatus returns a delivery's status after an attempt, and the interval until the next attempt if there is one.
func (d *delivery) nextStatus() (status string, next *time.Duration) {
	if d.outcome.tried {
		d.attempts++
	}
	if d.outcome.delivered() {
		return "delivered", nil
	}
	interval, retryable := retryInterval(max(d.attempts, 1))
	if !d.outcome.tried || !retryable || time.Since(d.createdAt) > deliveryTTL {
		return "failed", nil
	}
	return "waiting", &interval
}

// Edited resumes deliveries to a webhook that was edited.
func (d *Dispatcher) Edited(ctx context.Context, tx *pg.Tx, id int64) error {
	tx.Wake(WakeTopic)
	_, err := tx.Exec(
		ctx,
		"UPDATE webhook SET resting = NULL, failures = 0, paused_until = NULL, old_secret = CASE WHEN old_secret_until > now() THEN "+
			"old_secret END WHERE id = $1",
		id,
	)
	if err != nil {
		return fmt.Errorf("resume deliveries to webhook %d: %w", id, err)
	}
	return d.enqueueDue(ctx, tx)
}

// lockWebhooks locks the deliveries of webhooks for the transaction. Reads after it see what other transactions committed.
func lockWebhooks(ctx context.Context, tx *pg.Tx, ids ...int64) error {
	if _, err := tx.Exec(ctx, "SELECT FROM webhook WHERE id = ANY ($1) ORDER BY id FOR NO KEY UPDATE", ids); err != nil {
		return fmt.Errorf("lock webhooks: %w", err)
	}
	return nil
}

// releaseNext makes the first waiting delivery of each of these items due.
func releaseNext(ctx context.Context, tx *pg.Tx, id int64, items ...string) error {
	_, err := tx.Exec(ctx, `UPDATE webhook_delivery SET next_at = now() WHERE next_at = 'infinity' AND id IN (
		SELECT min(id) FROM webhook_delivery WHERE webhook_id = $1 AND status = 'waiting' AND item = ANY ($2) GROUP BY item)`, id, items)
	if err != nil {
		return fmt.Errorf("release the next deliveries: %w", err)
	}
	return nil
}

// disableWebhook disables a webhook whose receiver answered 410 Gone.
func disableWebhook(ctx context.Context, tx *pg.Tx, id int64) error {
	before, err := View.Get(ctx, tx, id)
	if err != nil || !before.Enabled {
		return err
	}
	if _, err := tx.Exec(
		ctx,
		"UPDATE webhook SET enabled = false, resting = 'the receiver answered 410 Gone', version = version + 1 WHERE id = $1",
		id,
	); err != nil {
		return fmt.Errorf("disable webhook %d: %w", id, err)
	}
	after, err := View.Get(ctx, tx, id)
	tx.Record(pg.Record{Kind: "webhook", Action: pg.Edited, Targets: []pg.Target{after.Target()}, Before: before, After: after})
	return err
}
