// Package webhook delivers events to the URLs of other programs. Deliveries are signed as Standard Webhooks specifies, and
// retried until the receiver accepts them or they are given up. See docs/do/webhooks.md.
package webhook

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/egress"
	"github.com/ironplane/ironplane/pkg/jobs"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/wake"
)

// Dispatcher delivers events to webhooks.
type Dispatcher struct {
	db     *pg.DB
	box    *seal.Box
	peers  mesh.Peers
	client *http.Client
}

// NewDispatcher returns a dispatcher that delivers to public addresses, and to private ones in the allowed networks.
func NewDispatcher(db *pg.DB, box *seal.Box, peers mesh.Peers, allowed egress.Networks) *Dispatcher {
	return &Dispatcher{db, box, peers, allowed.Client()}
}

const (
	// workers is how many webhooks a process delivers to at a time, and maxConcurrent how many events to each. A worker
	// holds a database connection only while it stores outcomes.
	workers, maxConcurrent = 100, 8
	// sliceTimeout is how long a job delivers before other webhooks get their turn, and idleTimeout how long it waits for
	// more events.
	sliceTimeout, idleTimeout = 30 * time.Second, 2 * time.Second
	idleInterval              = 200 * time.Millisecond
	// deliveryTTL is how long a delivery is retried.
	deliveryTTL = 3 * 24 * time.Hour
	// maxWaiting is how many deliveries to a webhook may wait. Older ones are given up.
	maxWaiting = 100_000
	// ownerRetryInterval is how long a webhook is suspended if its owner's permissions cannot be read, and restInterval if
	// the owner is disabled or lacks permissions.
	ownerRetryInterval, restInterval = 5 * time.Second, 20 * time.Second
	// maxBackoff is the longest suspension of a failing receiver, unless it sends Retry-After: then it is maxRetryAfter.
	maxBackoff, maxRetryAfter = time.Minute, time.Hour
	// dbTimeout limits storing outcomes, which also happens while the process ends.
	dbTimeout = 10 * time.Second
)

// retryIntervals are the intervals between attempts to deliver an event, about three days in total. Each is varied by 10 %.
var retryIntervals = []time.Duration{
	5 * time.Second,
	30 * time.Second,
	2 * time.Minute,
	5 * time.Minute,
	30 * time.Minute,
	2 * time.Hour,
	5 * time.Hour,
	10 * time.Hour,
	14 * time.Hour,
	20 * time.Hour,
	20 * time.Hour,
}

// retryInterval returns the interval after this attempt. It returns false after the last one.
func retryInterval(attempt int) (time.Duration, bool) {
	if attempt > len(retryIntervals) {
		return 0, false
	}
	interval := retryIntervals[attempt-1]
	return interval*9/10 + rand.N(interval/5), true
}

// jobArgs are the arguments of the job.
type jobArgs struct {
	Webhook int64 `json:"webhook"`
}

// Job delivers waiting events to one webhook. Each webhook has a job of its own, so a slow receiver does not delay others.
func (d *Dispatcher) Job() service.Job {
	return service.Job{
		Kind:    "webhook",
		Timeout: 2 * sliceTimeout,
		Backoff: func(int) time.Duration { return ownerRetryInterval },
		Workers: workers,
		Unique:  true,
		Do:      jobs.Do(d.deliver),
	}
}

// WakeTopic wakes the service when deliveries were queued, for now or later.
const WakeTopic = "webhooks"

// minWakeInterval is the shortest interval between two searches for due deliveries.
const minWakeInterval = time.Second

// Loop enqueues jobs for due deliveries: new ones, retries, and those of processes that were killed.
func (d *Dispatcher) Loop(woken <-chan struct{}) service.Task {
	return service.Task{Name: "deliver-webhooks", Run: func(ctx context.Context) error {
		return wake.Repeat(ctx, woken, minWakeInterval, d.Wake)
	}}
}

// Wake enqueues jobs for due deliveries, and returns how long to wait until the next ones are due. While a job delivers to
// a webhook, Wake checks that webhook again soon, because the job may be about to end.
func (d *Dispatcher) Wake(ctx context.Context) (next time.Duration, err error) {
	err = d.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("deliveries are not recorded")
		if err := d.enqueueDue(ctx, tx); err != nil {
			return err
		}
		var seconds *float64
		err := tx.QueryRow(ctx, `SELECT extract(epoch FROM min(greatest(d.next_at, w.paused_until)) - now())::float8 FROM webhook w, LATERAL (
			SELECT next_at FROM webhook_delivery WHERE webhook_id = w.id AND status = 'waiting' AND next_at < 'infinity' ORDER BY next_at LIMIT 1) d WHERE enabled`).
			Scan(&seconds)
		if err != nil {
			return fmt.Errorf("find when the next delivery is due: %w", err)
		}
		next = wake.Interval
		if seconds != nil {
			next = max(min(next, time.Duration(*seconds*float64(time.Second))), minWakeInterval)
		}
		return nil
	})
	return next, err
}

// enqueueDue enqueues a job for each webhook with due deliveries, unless one is running.
func (d *Dispatcher) enqueueDue(ctx context.Context, tx *pg.Tx) error {
	rows, err := tx.Query(ctx, `SELECT id FROM webhook w WHERE enabled AND coalesce(paused_until, '-infinity') <= now()
		AND EXISTS (SELECT FROM webhook_delivery d WHERE d.webhook_id = w.id AND d.status = 'waiting' AND d.next_at <= now())
		AND NOT EXISTS (SELECT FROM river_job j WHERE j.queue = 'webhook' AND j.state = 'running' AND j.args = jsonb_build_object('webhook', w.id)) ORDER BY id`)
	if err != nil {
		return fmt.Errorf("find webhooks with due deliveries: %w", err)
	}
	due, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("find webhooks with due deliveries: %w", err)
	}
	job := d.Job()
	ctx = principal.NewContext(ctx, &principal.Call{}) // the job is not part of a request
	for _, id := range due {
		if err := jobs.Enqueue(ctx, tx, &job, jobArgs{id}); err != nil {
			return err
		}
	}
	return nil
}

// deliver delivers to a webhook until nothing is due, for at most sliceTimeout.
func (d *Dispatcher) deliver(ctx context.Context, _ *service.Attempt, t jobArgs) error {
	end, idle := time.Now().Add(sliceTimeout), time.Time{}
	for ctx.Err() == nil && time.Now().Before(end) {
		n, err := d.deliverBatch(ctx, t.Webhook)
		switch {
		case err != nil:
			return err
		case n < 0:
			return nil
		case n > 0:
			idle = time.Time{}
			continue
		case idle.IsZero():
			idle = time.Now().Add(idleTimeout)
		case time.Now().After(idle):
			return nil
		}
		select {
		case <-time.After(idleInterval):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// receiver is what is needed to deliver to a webhook.
type receiver struct {
	id              int64
	url, owner      string
	keys            [][]byte // that sign deliveries, the newest first
	failures        int
	enabled, paused bool
}

// delivery is an event that waits for a webhook.
type delivery struct {
	id, event  int64
	item, uuid string
	kind       string
	attempts   int
	createdAt  time.Time
	payload    string
	outcome    outcome

	traceparent string // the span whose change or request is the cause; empty: it was not traced
}

// deliverBatch delivers up to maxConcurrent due events, each the first one of its item. It returns how many it delivered, or
// -1 if the job should end.
func (d *Dispatcher) deliverBatch(ctx context.Context, id int64) (int, error) {
	r, err := d.readReceiver(ctx, id)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && (!r.enabled || r.paused) {
		return -1, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read webhook %d: %w", id, err)
	}
	due, err := d.findDue(ctx, id)
	if err != nil || len(due) == 0 {
		return 0, err
	}
	owner, err := d.readOwner(ctx, r.owner)
	if err != nil {
		return -1, errors.Join(
			fmt.Errorf("read the permissions of %s: %w", r.owner, err),
			d.suspend(ctx, id, ownerRetryInterval, "the permissions of the webhook's owner cannot be read"),
		)
	}
	switch {
	case !owner.Active:
		return -1, d.suspend(ctx, id, restInterval, "the webhook's owner is disabled or deleted")
	case !owner.Grants.Holds(principal.Grant(permission.SystemIntegrations, permission.Read)):
		return -1, d.suspend(ctx, id, restInterval, "the webhook's owner lacks "+permission.SystemIntegrations.String()+" read")
	}
	done := make(chan struct{})
	for i := range due {
		go func() {
			defer func() { done <- struct{}{} }()
			due[i].outcome = d.attemptDelivery(ctx, r, &due[i], owner.Grants)
		}()
	}
	for range due {
		<-done
	}
	due = slices.DeleteFunc(due, func(one delivery) bool { return one.outcome.interrupted })
	if len(due) == 0 {
		return -1, ctx.Err()
	}
	return len(due), d.storeOutcomes(ctx, r, due)
}

// readReceiver returns a webhook with its keys. The error is pgx.ErrNoRows if it was deleted.
func (d *Dispatcher) readReceiver(ctx context.Context, id int64) (r receiver, err error) {
	var sealed [2][]byte
	r.id = id
	err = d.db.QueryRow(ctx, `SELECT url, owner_url, secret, CASE WHEN old_secret_until > now() THEN old_secret END, failures, enabled, coalesce(paused_until > now(), false) FROM webhook WHERE id = $1`, id).
		Scan(&r.url, &r.owner, &sealed[0], &sealed[1], &r.failures, &r.enabled, &r.paused)
	if err != nil {
		return r, err
	}
	for i, column := range []string{"secret", "old_secret"} {
		if sealed[i] == nil {
			continue
		}
		text, err := d.box.Open(seal.Location{Table: "webhook", Column: column, ID: id}, sealed[i])
		if err != nil {
			return r, err
		}
		key, err := parseSecret(text)
		if err != nil {
			return r, fmt.Errorf("webhook %d: %w", id, err)
		}
		r.keys = append(r.keys, key)
	}
	return r, nil
}

// findDue returns due deliveries, each the first one of its item.
func (d *Dispatcher) findDue(ctx context.Context, id int64) ([]delivery, error) {
	rows, err := d.db.Query(ctx, `SELECT d.id, d.event_id, d.item, e.uuid, e.type, d.attempts, d.created_at, e.payload,
			coalesce(d.traceparent, '')
		FROM webhook_delivery d JOIN webhook_event e ON e.id = d.event_id
		WHERE d.webhook_id = $1 AND d.status = 'waiting' AND d.next_at <= now() ORDER BY d.next_at, d.id LIMIT $2`, id, maxConcurrent)
	if err != nil {
		return nil, fmt.Errorf("read the due deliveries of webhook %d: %w", id, err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (one delivery, err error) {
		return one, row.Scan(
			&one.id, &one.event, &one.item, &one.uuid, &one.kind, &one.attempts, &one.createdAt, &one.payload, &one.traceparent,
		)
	})
}

// readOwner returns the present permissions of a webhook's owner. A deleted owner is the zero Owner.
func (d *Dispatcher) readOwner(ctx context.Context, url string) (holder keycache.Owner, err error) {
	owner, ok := principal.ParseOwner(url)
	switch {
	case ok && owner.Type == principal.Admin:
		ownerCtx, cancel := d.peers.Limit(ctx, dbTimeout)
		defer cancel()
		return holder, d.peers.Ask(ownerCtx, "identity", "/internal/owner"+url, &holder)
	case ok && owner.Type == principal.Integration:
		var names []string
		err = d.db.QueryRow(ctx, "SELECT NOT disabled, permissions FROM integration WHERE id = $1", owner.ID).Scan(&holder.Active, &names)
		if errors.Is(err, pgx.ErrNoRows) {
			return keycache.Owner{}, nil
		}
		holder.Grants = principal.ParseGrants(names)
		return holder, err
	}
	return holder, nil
}

// Metrics returns the dispatcher's metrics.
func (d *Dispatcher) Metrics() []prometheus.Collector {
	return []prometheus.Collector{
		service.Gauge(d.db, "ironplane_webhook_deliveries_waiting", "Webhook deliveries that are in progress or wait for an attempt.",
			"SELECT count(*)::float8 FROM webhook_delivery WHERE status = 'waiting'"),
		service.Gauge(
			d.db,
			"ironplane_webhook_deliveries_late_seconds",
			"How long the oldest due delivery to an enabled webhook has waited; 0 if none is due.",
			"SELECT coalesce(extract(epoch FROM now() - min(d.next_at)), 0)::float8 "+
				"FROM webhook_delivery d JOIN webhook w ON w.id = webhook_id WHERE status = 'waiting' AND next_at <= now() AND enabled",
		),
	}
}
