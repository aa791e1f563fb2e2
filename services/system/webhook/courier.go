// Package webhook tells other programs what happens: it delivers events to the addresses that they gave, signed as Standard
// Webhooks say, until each has been taken or is given up. See docs/webhooks.md.
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
)

// Courier delivers events to webhooks.
type Courier struct {
	db     *pg.DB
	box    *seal.Box
	peers  mesh.Peers
	client *http.Client
}

// NewCourier makes one that reaches the Internet and these networks of one's own.
func NewCourier(db *pg.DB, box *seal.Box, peers mesh.Peers, allowed egress.Networks) *Courier {
	return &Courier{db, box, peers, allowed.Client()}
}

const (
	// workers is how many webhooks a process delivers to at a time, and atOnce how many events to each. A worker holds a connection
	// to the database only while it notes what came of deliveries.
	workers, atOnce = 100, 8
	// sliceTime is how long a job goes on while there is something to deliver, and lingerTime how long it waits for more.
	sliceTime, lingerTime = 30 * time.Second, 2 * time.Second
	lingerPause           = 200 * time.Millisecond
	// lifetime is how long an event is tried to be delivered.
	lifetime = 3 * 24 * time.Hour
	// mostWaiting is how many deliveries to one webhook wait at most: older ones are given up.
	mostWaiting = 100_000
	// askPause is how long nothing is tried where it cannot be found out what the maker may, and restPause where he may not have it.
	askPause, restPause = 5 * time.Second, 20 * time.Second
	// longestPause is how long at most a receiver is left alone that takes nothing, but where it asks for more.
	longestPause, longestWished = time.Minute, time.Hour
	// dbTime is for what came of deliveries to be noted, also when the process ends.
	dbTime = 10 * time.Second
)

// pauses are those between attempts to deliver an event, with a tenth more or less: together about three days.
var pauses = []time.Duration{
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

func pauseAfter(attempt int) (time.Duration, bool) {
	if attempt > len(pauses) {
		return 0, false
	}
	pause := pauses[attempt-1]
	return pause*9/10 + rand.N(pause/5), true
}

type task struct {
	Webhook int64 `json:"webhook"`
}

// Job delivers to one webhook what waits for it. There is one of them for each that something waits for, so a slow receiver
// holds up nobody else's.
func (c *Courier) Job() service.Job {
	return service.Job{
		Kind:    "webhook",
		Timeout: 2 * sliceTime,
		Backoff: func(int) time.Duration { return askPause },
		Workers: workers,
		Unique:  true,
		Do:      jobs.Do(c.work),
	}
}

// Wake has delivered what waits: what has just come, what is to be tried again, and what nobody does whose process was killed.
func (c *Courier) Wake(ctx context.Context) error {
	return c.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("deliveries are no changes")
		return c.wake(ctx, tx)
	})
}

func (c *Courier) wake(ctx context.Context, tx *pg.Tx) error {
	rows, err := tx.Query(ctx, `SELECT id FROM webhook w WHERE enabled AND coalesce(paused_until, '-infinity') <= now()
		AND EXISTS (SELECT FROM webhook_delivery d WHERE d.webhook_id = w.id AND d.status = 'waiting' AND d.next_at <= now())
		AND NOT EXISTS (SELECT FROM river_job j WHERE j.queue = 'webhook' AND j.state = 'running' AND j.args = jsonb_build_object('webhook', w.id)) ORDER BY id`)
	if err != nil {
		return fmt.Errorf("look for what is to be delivered: %w", err)
	}
	due, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("look for what is to be delivered: %w", err)
	}
	job := c.Job()
	ctx = principal.With(ctx, &principal.Call{}) // what comes of deliveries is nobody's request
	for _, id := range due {
		if err := jobs.Enqueue(ctx, tx, &job, task{id}); err != nil {
			return err
		}
	}
	return nil
}

// work delivers to a webhook while there is something to deliver, for a while: others have their turn then.
func (c *Courier) work(ctx context.Context, _ *service.Attempt, t task) error {
	end, idle := time.Now().Add(sliceTime), time.Time{}
	for ctx.Err() == nil && time.Now().Before(end) {
		n, err := c.round(ctx, t.Webhook)
		switch {
		case err != nil:
			return err
		case n < 0:
			return nil
		case n > 0:
			idle = time.Time{}
			continue
		case idle.IsZero():
			idle = time.Now().Add(lingerTime)
		case time.Now().After(idle):
			return nil
		}
		select {
		case <-time.After(lingerPause):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// receiver is a webhook as it is delivered to.
type receiver struct {
	id              int64
	url, owner      string
	keys            [][]byte // that it is signed with, the newest first
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
}

// round delivers as many of the events that are due as are delivered at once, each the first one of its item, and tells how
// many they were; -1: there is nothing to wait for.
func (c *Courier) round(ctx context.Context, id int64) (int, error) {
	r, err := c.receiver(ctx, id)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && (!r.enabled || r.paused) {
		return -1, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read webhook %d: %w", id, err)
	}
	due, err := c.due(ctx, id)
	if err != nil || len(due) == 0 {
		return 0, err
	}
	maker, err := c.maker(ctx, r.owner)
	if err != nil {
		return -1, errors.Join(
			fmt.Errorf("ask what %s may: %w", r.owner, err),
			c.rest(ctx, id, askPause, "it cannot be found out what its maker may"),
		)
	}
	switch {
	case !maker.Active:
		return -1, c.rest(ctx, id, restPause, "its maker is disabled or gone")
	case !maker.Grants.Holds(principal.Grant(permission.SystemIntegrations, permission.Read)):
		return -1, c.rest(ctx, id, restPause, "its maker lacks "+permission.SystemIntegrations.String()+" read")
	}
	done := make(chan struct{})
	for i := range due {
		go func() {
			defer func() { done <- struct{}{} }()
			due[i].outcome = c.attempt(ctx, r, &due[i], maker.Grants)
		}()
	}
	for range due {
		<-done
	}
	due = slices.DeleteFunc(due, func(d delivery) bool { return d.outcome.cut })
	if len(due) == 0 {
		return -1, ctx.Err()
	}
	return len(due), c.note(ctx, r, due)
}

func (c *Courier) receiver(ctx context.Context, id int64) (r receiver, err error) {
	var sealed [2][]byte
	r.id = id
	err = c.db.QueryRow(ctx, `SELECT url, owner_url, secret, CASE WHEN old_secret_until > now() THEN old_secret END, failures, enabled, coalesce(paused_until > now(), false) FROM webhook WHERE id = $1`, id).
		Scan(&r.url, &r.owner, &sealed[0], &sealed[1], &r.failures, &r.enabled, &r.paused)
	if err != nil {
		return r, err
	}
	for i, column := range []string{"secret", "old_secret"} {
		if sealed[i] == nil {
			continue
		}
		text, err := c.box.Open(seal.Place{Table: "webhook", Column: column, ID: id}, sealed[i])
		if err != nil {
			return r, err
		}
		key, err := keyOf(text)
		if err != nil {
			return r, fmt.Errorf("webhook %d: %w", id, err)
		}
		r.keys = append(r.keys, key)
	}
	return r, nil
}

// due are the first events of their items.
func (c *Courier) due(ctx context.Context, id int64) ([]delivery, error) {
	rows, err := c.db.Query(ctx, `SELECT d.id, d.event_id, d.item, e.uuid, e.type, d.attempts, d.created_at, e.payload
		FROM webhook_delivery d JOIN webhook_event e ON e.id = d.event_id
		WHERE d.webhook_id = $1 AND d.status = 'waiting' AND d.next_at <= now() ORDER BY d.next_at, d.id LIMIT $2`, id, atOnce)
	if err != nil {
		return nil, fmt.Errorf("read what is to be delivered to webhook %d: %w", id, err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (d delivery, err error) {
		return d, row.Scan(&d.id, &d.event, &d.item, &d.uuid, &d.kind, &d.attempts, &d.createdAt, &d.payload)
	})
}

// maker is what the account holds that made a webhook, right now.
func (c *Courier) maker(ctx context.Context, url string) (maker keycache.Owner, err error) {
	owner, ok := principal.ParseOwner(url)
	switch {
	case ok && owner.Type == principal.Admin:
		asking, cancel := context.WithTimeout(ctx, dbTime)
		defer cancel()
		return maker, c.peers.Ask(asking, "identity", "/internal/owner"+url, &maker)
	case ok && owner.Type == principal.Integration:
		var names []string
		err = c.db.QueryRow(ctx, "SELECT NOT disabled, permissions FROM integration WHERE id = $1", owner.ID).Scan(&maker.Active, &names)
		if errors.Is(err, pgx.ErrNoRows) {
			return keycache.Owner{}, nil
		}
		maker.Grants = principal.ParseGrants(names)
		return maker, err
	}
	return maker, nil
}

// rest leaves a webhook alone for a moment.
func (c *Courier) rest(ctx context.Context, id int64, pause time.Duration, why string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dbTime)
	defer cancel()
	return c.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("what is delivered is no change")
		_, err := tx.Exec(ctx, "UPDATE webhook SET resting = $2, paused_until = now() + $3::interval WHERE id = $1", id, why, pause)
		return err
	})
}

// note keeps what came of a round, and lets the next events of its items through.
func (c *Courier) note(ctx context.Context, r receiver, all []delivery) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dbTime)
	defer cancel()
	return c.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("what is delivered is no change")
		if err := hold(ctx, tx, r.id); err != nil {
			return err
		}
		var ended []string
		reached, gone, pause := false, false, time.Duration(0)
		for i := range all {
			d := &all[i]
			status, next := d.fate()
			if status != "waiting" {
				ended = append(ended, d.item)
			}
			reached, gone, pause = reached || !d.outcome.tried ||
				d.outcome.delivered(), gone ||
				d.outcome.status == http.StatusGone, max(
				pause,
				d.outcome.wished,
			)
			_, err := tx.Exec(
				ctx,
				`UPDATE webhook_delivery SET status = $2, attempts = $3, next_at = now() + $4::interval, tried_at = now(), duration = $5,
				answer_status = nullif($6, 0), answer = nullif($7, ''), error = nullif($8, '') WHERE id = $1 AND status = 'waiting'`,
				d.id,
				status,
				d.attempts,
				next,
				d.outcome.took.Milliseconds(),
				d.outcome.status,
				d.outcome.answer,
				d.outcome.reason,
			)
			if err != nil {
				return fmt.Errorf("note what came of delivery %d: %w", d.id, err)
			}
		}
		if err := advance(ctx, tx, r.id, ended...); err != nil {
			return err
		}
		failures := 0
		if !reached {
			failures = r.failures + 1
			pause = max(pause, min(time.Second<<min(failures-1, 10), longestPause))
		}
		if failures > 0 || r.failures > 0 || pause > 0 {
			if _, err := tx.Exec(
				ctx,
				"UPDATE webhook SET failures = $2, resting = CASE WHEN $3::interval > '0' THEN 'the receiver has failed' END, paused_until = now() + nullif($3::interval, '0') WHERE id = $1",
				r.id,
				failures,
				pause,
			); err != nil {
				return fmt.Errorf("note how webhook %d does: %w", r.id, err)
			}
		}
		if gone {
			return disable(ctx, tx, r.id)
		}
		return nil
	})
}

// fate is what becomes of a delivery after an attempt.
func (d *delivery) fate() (status string, next *time.Duration) {
	if d.outcome.tried {
		d.attempts++
	}
	if d.outcome.delivered() {
		return "delivered", nil
	}
	pause, again := pauseAfter(max(d.attempts, 1))
	if !d.outcome.tried || !again || time.Since(d.createdAt) > lifetime {
		return "failed", nil
	}
	return "waiting", &pause
}

// Edited tries at once what waits for a webhook that was edited.
func (c *Courier) Edited(ctx context.Context, tx *pg.Tx, id int64) error {
	_, err := tx.Exec(
		ctx,
		"UPDATE webhook SET resting = NULL, failures = 0, paused_until = NULL, old_secret = CASE WHEN old_secret_until > now() THEN old_secret END WHERE id = $1",
		id,
	)
	if err != nil {
		return fmt.Errorf("have webhook %d delivered to: %w", id, err)
	}
	return c.wake(ctx, tx)
}

// hold keeps others off the deliveries to a webhook: what is read afterwards is what they left.
func hold(ctx context.Context, tx *pg.Tx, ids ...int64) error {
	if _, err := tx.Exec(ctx, "SELECT FROM webhook WHERE id = ANY ($1) ORDER BY id FOR NO KEY UPDATE", ids); err != nil {
		return fmt.Errorf("hold webhooks: %w", err)
	}
	return nil
}

// advance lets the first event through that waits of each of these items.
func advance(ctx context.Context, tx *pg.Tx, id int64, items ...string) error {
	_, err := tx.Exec(ctx, `UPDATE webhook_delivery SET next_at = now() WHERE next_at = 'infinity' AND id IN (
		SELECT min(id) FROM webhook_delivery WHERE webhook_id = $1 AND status = 'waiting' AND item = ANY ($2) GROUP BY item)`, id, items)
	if err != nil {
		return fmt.Errorf("let the next deliveries through: %w", err)
	}
	return nil
}

// disable ends the deliveries to a webhook that answered that it is gone.
func disable(ctx context.Context, tx *pg.Tx, id int64) error {
	before, err := View.Get(ctx, tx, id)
	if err != nil || !before.Enabled {
		return err
	}
	if _, err := tx.Exec(
		ctx,
		"UPDATE webhook SET enabled = false, resting = 'the receiver has answered 410: it is gone', version = version + 1 WHERE id = $1",
		id,
	); err != nil {
		return fmt.Errorf("disable webhook %d: %w", id, err)
	}
	after, err := View.Get(ctx, tx, id)
	tx.Record(pg.Record{Kind: "webhook", Action: pg.Edited, Targets: []pg.Target{after.Target()}, Before: before, After: after})
	return err
}

// Tidy gives up what has waited for too long, forgets secrets that are good no longer, and deletes what ended so many days ago.
func (c *Courier) Tidy(ctx context.Context, days int) error {
	rows, err := c.db.Query(ctx, "SELECT id FROM webhook ORDER BY id")
	if err != nil {
		return fmt.Errorf("list webhooks: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("list webhooks: %w", err)
	}
	for _, id := range ids {
		err = errors.Join(err, c.giveUp(ctx, id))
	}
	for _, what := range []string{
		"DELETE FROM webhook_delivery WHERE id IN (SELECT id FROM webhook_delivery WHERE created_at < now() - make_interval(days => $1) AND status <> 'waiting' LIMIT $2)",
		"DELETE FROM webhook_delivery WHERE id IN (SELECT id FROM webhook_delivery d WHERE NOT EXISTS (SELECT FROM webhook w WHERE w.id = d.webhook_id) AND $1 > 0 LIMIT $2)",
		// One that was made just then may be about to be delivered.
		"DELETE FROM webhook_event WHERE id IN (SELECT id FROM webhook_event e WHERE at < now() - interval '1 hour' AND $1 > 0 AND NOT EXISTS (SELECT FROM webhook_delivery d WHERE d.event_id = e.id) LIMIT $2)",
	} {
		err = errors.Join(err, c.sweep(ctx, what, days))
	}
	return err
}

// batch is how many rows are deleted in one transaction.
const batch = 5000

func (c *Courier) sweep(ctx context.Context, sql string, days int) error {
	for gone := int64(batch); gone == batch; {
		err := c.db.InTx(ctx, func(tx *pg.Tx) error {
			tx.Unrecorded("they were kept as long as they were to be")
			done, err := tx.Exec(ctx, sql, days, batch)
			gone = done.RowsAffected()
			return err
		})
		if err != nil {
			return fmt.Errorf("delete old deliveries: %w", err)
		}
	}
	return nil
}

func (c *Courier) giveUp(ctx context.Context, id int64) error {
	return c.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("what is delivered is no change")
		if err := hold(ctx, tx, id); err != nil {
			return err
		}
		if _, err := tx.Exec(
			ctx,
			"UPDATE webhook SET old_secret = NULL WHERE id = $1 AND old_secret IS NOT NULL AND old_secret_until <= now()",
			id,
		); err != nil {
			return fmt.Errorf("forget the old secret of webhook %d: %w", id, err)
		}
		rows, err := tx.Query(
			ctx,
			`UPDATE webhook_delivery SET status = 'failed', next_at = NULL, error = coalesce(error || '; ', '') || 'it was given up: it waited for three days, or too many did'
			WHERE webhook_id = $1 AND status = 'waiting' AND (created_at < now() - $2::interval
				OR id <= (SELECT id FROM webhook_delivery WHERE webhook_id = $1 AND status = 'waiting' ORDER BY id DESC OFFSET $3 LIMIT 1)) RETURNING item`,
			id,
			lifetime+time.Hour,
			mostWaiting,
		)
		if err != nil {
			return fmt.Errorf("give deliveries up: %w", err)
		}
		items, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || len(items) == 0 {
			return err
		}
		return advance(ctx, tx, id, items...)
	})
}

// Metrics are what operators see of it.
func (c *Courier) Metrics() []prometheus.Collector {
	return []prometheus.Collector{
		service.Gauge(c.db, "ironplane_webhook_deliveries_waiting", "Deliveries to webhooks that are being made, or wait to be.",
			"SELECT count(*)::float8 FROM webhook_delivery WHERE status = 'waiting'"),
		service.Gauge(
			c.db,
			"ironplane_webhook_deliveries_late_seconds",
			"How long the oldest delivery waits that could be made to a webhook that is not disabled; 0: none does.",
			"SELECT coalesce(extract(epoch FROM now() - min(d.next_at)), 0)::float8 FROM webhook_delivery d JOIN webhook w ON w.id = webhook_id WHERE status = 'waiting' AND next_at <= now() AND enabled",
		),
	}
}
