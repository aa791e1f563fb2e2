package webhook

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/runtime/tracing"
)

// ConsumerName is the name of the consumers that queue deliveries.
const ConsumerName = "webhooks"

// Queue queues a service's changes for delivery to the webhooks whose patterns match.
func (d *Dispatcher) Queue(ctx context.Context, tx *pg.Tx, source string, changes []events.Event) error {
	rows, err := tx.Query(ctx, "SELECT id, types, created_at FROM webhook ORDER BY id")
	if err != nil {
		return fmt.Errorf("list webhooks: %w", err)
	}
	type hook struct {
		id    int64
		types []string
		since time.Time
	}
	hooks, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (h hook, err error) { return h, row.Scan(&h.id, &h.types, &h.since) })
	if err != nil || len(hooks) == 0 {
		return err
	}
	var queue deliveryQueue
	for i := range changes {
		e := &changes[i]
		var to []int64
		for _, h := range hooks {
			if matches(h.types, e.Type) && !e.At.Before(h.since) {
				to = append(to, h.id)
			}
		}
		if len(to) == 0 {
			continue
		}
		m, err := newMessage(source, e)
		if err != nil {
			return err
		}
		if err := queue.add(ctx, tx, m, to...); err != nil {
			return err
		}
	}
	if len(queue.webhooks) == 0 {
		return nil
	}
	if err := queue.insert(ctx, tx, "event"); err != nil {
		return err
	}
	return d.enqueueDue(ctx, tx)
}

// deliveryQueue holds deliveries to insert, by column.
type deliveryQueue struct {
	webhooks, events    []int64
	items, traceparents []string
}

func (d *deliveryQueue) push(webhook, event int64, item, traceparent string) {
	d.webhooks, d.events = append(d.webhooks, webhook), append(d.events, event)
	d.items, d.traceparents = append(d.items, item), append(d.traceparents, traceparent)
}

// add stores an event, and adds its deliveries to webhooks.
func (d *deliveryQueue) add(ctx context.Context, tx *pg.Tx, m message, to ...int64) error {
	var id int64
	err := tx.QueryRow(
		ctx, "INSERT INTO webhook_event (uuid, type, at, payload) VALUES ($1, $2, $3, $4) RETURNING id", m.id, m.kind, m.at, m.payload,
	).
		Scan(&id)
	if err != nil {
		return fmt.Errorf("store the event %s: %w", m.id, err)
	}
	for _, webhook := range to {
		d.push(webhook, id, m.item, m.traceparent)
	}
	return nil
}

// insert inserts the deliveries in order. A delivery waits for earlier ones of the same item.
func (d *deliveryQueue) insert(ctx context.Context, tx *pg.Tx, cause string) error {
	tx.Wake(WakeTopic)
	if err := lockWebhooks(ctx, tx, slices.Compact(slices.Sorted(slices.Values(d.webhooks)))...); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO webhook_delivery (webhook_id, event_id, item, cause, traceparent, next_at)
		SELECT webhook, event, item, $4, nullif(traceparent, ''), CASE WHEN row_number() OVER (PARTITION BY webhook, item ORDER BY n) > 1
			OR EXISTS (SELECT FROM webhook_delivery w WHERE w.webhook_id = webhook AND w.item = queued.item AND w.status = 'waiting') THEN 'infinity'::timestamptz ELSE now() END
		FROM unnest($1::bigint[], $2::bigint[], $3::text[], $5::text[]) WITH ORDINALITY AS queued (webhook, event, item, traceparent, n)
		ORDER BY n`, d.webhooks, d.events, d.items, cause, d.traceparents)
	if err != nil {
		return fmt.Errorf("queue deliveries: %w", err)
	}
	return nil
}

// queueSummary is what the log says about deliveries that a caller requested.
type queueSummary struct {
	Deliveries int    `json:"deliveries"`
	From       string `json:"from,omitempty"`
	To         string `json:"to,omitempty"`
}

// recordQueued records that a caller requested deliveries.
func recordQueued(tx *pg.Tx, w *Webhook, action pg.Action, summary queueSummary) {
	tx.Record(pg.Record{Kind: "webhook", Action: action, Targets: []pg.Target{w.Target()}, After: summary})
}

// Test queues a test event for a webhook.
func (d *Dispatcher) Test(ctx context.Context, tx *pg.Tx, id int64) (WebhookDelivery, error) {
	var none WebhookDelivery
	w, err := View.Get(ctx, tx, id)
	if err != nil {
		return none, err
	}
	call := principal.FromContext(ctx)
	m, err := testMessage(id, w.Name, call.Principal, call.RequestID)
	if err != nil {
		return none, err
	}
	m.traceparent = tracing.Traceparent(ctx)
	var queue deliveryQueue
	if err := queue.add(ctx, tx, m, id); err != nil {
		return none, err
	}
	if err := queue.insert(ctx, tx, "test"); err != nil {
		return none, err
	}
	recordQueued(tx, &w, "tested", queueSummary{Deliveries: 1})
	return d.startNewest(ctx, tx, id)
}

// startNewest starts due deliveries, and returns the delivery that was queued last.
func (d *Dispatcher) startNewest(ctx context.Context, tx *pg.Tx, id int64) (WebhookDelivery, error) {
	if err := d.enqueueDue(ctx, tx); err != nil {
		return WebhookDelivery{}, err
	}
	return Deliveries.Find(ctx, tx, "webhook_id = $1 ORDER BY id DESC LIMIT 1", id)
}

// ReplayOne delivers an event again. A delivery that waits for a retry is retried now.
func (d *Dispatcher) ReplayOne(ctx context.Context, tx *pg.Tx, id, delivery int64) (WebhookDelivery, error) {
	var none WebhookDelivery
	w, err := View.Get(ctx, tx, id)
	if err != nil {
		return none, err
	}
	if err := lockWebhooks(ctx, tx, id); err != nil {
		return none, err
	}
	var status, item string
	var event int64
	if err := tx.QueryRow(ctx, "SELECT status, item, event_id FROM webhook_delivery WHERE id = $1 AND webhook_id = $2", delivery, id).
		Scan(&status, &item, &event); err != nil {
		return none, err
	}
	recordQueued(tx, &w, "replayed", queueSummary{Deliveries: 1})
	if status == "waiting" {
		if _, err := tx.Exec(
			ctx,
			"UPDATE webhook_delivery SET next_at = least(next_at, now()) WHERE id = $1 AND next_at < 'infinity'",
			delivery,
		); err != nil {
			return none, fmt.Errorf("retry delivery %d: %w", delivery, err)
		}
		tx.Wake(WakeTopic)
		if _, err := tx.Exec(ctx, "UPDATE webhook SET paused_until = NULL WHERE id = $1", id); err != nil {
			return none, fmt.Errorf("retry delivery %d: %w", delivery, err)
		}
		if err := d.enqueueDue(ctx, tx); err != nil {
			return none, err
		}
		return Deliveries.Get(ctx, tx, delivery)
	}
	var queue deliveryQueue
	queue.push(id, event, item, tracing.Traceparent(ctx))
	if err := queue.insert(ctx, tx, "replay"); err != nil {
		return none, err
	}
	return d.startNewest(ctx, tx, id)
}

// maxReplayed is how many events one request can replay.
const maxReplayed = 10_000

// Replay delivers the webhook's events of a span of time again, in order. It leaves out events that still wait.
func (d *Dispatcher) Replay(ctx context.Context, tx *pg.Tx, id int64, from, to time.Time) (Replayed, error) {
	var none Replayed
	w, err := View.Get(ctx, tx, id)
	if err != nil {
		return none, err
	}
	if err := lockWebhooks(ctx, tx, id); err != nil {
		return none, err
	}
	rows, err := tx.Query(ctx, `SELECT e.id, min(d.item) FROM webhook_delivery d JOIN webhook_event e ON e.id = d.event_id
		WHERE d.webhook_id = $1 AND d.cause <> 'test' AND e.at >= $2 AND e.at <= $3 GROUP BY e.id HAVING bool_and(d.status <> 'waiting') ORDER BY e.id LIMIT $4`, id, from, to, maxReplayed+1)
	if err != nil {
		return none, fmt.Errorf("find the events to replay: %w", err)
	}
	var queue deliveryQueue
	var event int64
	var item string
	if _, err := pgx.ForEachRow(rows, []any{&event, &item}, func() error {
		queue.push(id, event, item, tracing.Traceparent(ctx))
		return nil
	}); err != nil {
		return none, fmt.Errorf("find the events to replay: %w", err)
	}
	n := len(queue.events)
	if n > maxReplayed {
		return none, problem.Member("/to", "out_of_range", "must be earlier: the span has more than %d events", maxReplayed)
	}
	if err := queue.insert(ctx, tx, "replay"); err != nil {
		return none, err
	}
	recordQueued(tx, &w, "replayed", queueSummary{n, from.UTC().Format(time.RFC3339), to.UTC().Format(time.RFC3339)})
	return Replayed{int64(n)}, d.enqueueDue(ctx, tx)
}
