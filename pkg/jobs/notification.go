package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// notificationBuffer is how much River may be told of that it has not heard yet. What is more is found by watch.
const notificationBuffer = 1000

// notifications are what River is told, as if Postgres had notified it.
type notifications chan *riverdriver.Notification

// available tells that there may be jobs of a kind.
func (n notifications) available(kind string) {
	n.add("river_insert", map[string]any{"queue": kind})
}

// cancel tells that a job that is being done is to stop.
func (n notifications) cancel(kind string, job int64) {
	n.add("river_control", map[string]any{"action": "cancel", "queue": kind, "job_id": job})
}

func (n notifications) add(topic string, content map[string]any) {
	text, _ := json.Marshal(content)
	select {
	case n <- &riverdriver.Notification{Topic: topic, Payload: string(text)}:
	default:
	}
}

// notifyingDriver is a driver by which River hears the news.
type notifyingDriver struct {
	driver
	notices notifications
}

func (notifyingDriver) SupportsListener() bool { return true }

func (l notifyingDriver) GetListener(*riverdriver.GetListenenerParams) riverdriver.Listener {
	return listener{l.notices}
}

// listener has no connection of its own.
type listener struct{ notices notifications }

func (listener) Close(context.Context) error            { return nil }
func (listener) Connect(context.Context) error          { return nil }
func (listener) Listen(context.Context, string) error   { return nil }
func (listener) Ping(context.Context) error             { return nil }
func (listener) Schema() string                         { return "" }
func (listener) SetAfterConnectExec(string)             {}
func (listener) Unlisten(context.Context, string) error { return nil }

func (l listener) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	select {
	case n := <-l.notices:
		return n, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// notifyRiver has River look for jobs when they are enqueued, or have waited for a moment, and stop those that are cancelled.
func (r *Runner) notifyRiver(ctx context.Context, notifying *sync.WaitGroup, client *river.Client[pgx.Tx], notices notifications) {
	each := func(woken <-chan struct{}, do func()) {
		notifying.Go(func() {
			for {
				select {
				case <-woken:
					do()
				case <-ctx.Done():
					return
				}
			}
		})
	}
	for kind, woken := range r.enqueued {
		each(woken, func() { notices.available(kind) })
	}
	each(r.cancelled, func() {
		looking, end := context.WithTimeout(ctx, heartbeatInterval)
		defer end()
		_ = findCancelled(looking, r.db, notices) // where that fails, watch finds them
	})
	ended, unsubscribe := client.Subscribe(river.EventKindJobFailed, river.EventKindJobSnoozed)
	notifying.Go(func() {
		defer unsubscribe()
		for {
			select {
			case e, ok := <-ended:
				if !ok {
					return
				}
				if e.Job.State == rivertype.JobStateAvailable { // it waits for less than River's scheduler looks after
					time.AfterFunc(time.Until(e.Job.ScheduledAt), func() { notices.available(e.Job.Queue) })
				}
			case <-ctx.Done():
				return
			}
		}
	})
}

// findDue tells River of kinds of which there are jobs that could have begun.
func (r *Runner) findDue(ctx context.Context, q pg.Querier, notices notifications) error {
	all := make([]string, 0, len(r.kinds))
	for _, kind := range r.kinds {
		all = append(all, kind.Kind)
	}
	rows, err := q.Query(ctx, `SELECT kind FROM unnest($1::text[]) kind
		WHERE EXISTS (SELECT FROM river_job WHERE state = 'available' AND queue = kind AND scheduled_at <= now())`, all)
	if err != nil {
		return fmt.Errorf("look for jobs: %w", err)
	}
	due, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("look for jobs: %w", err)
	}
	for _, kind := range due {
		notices.available(kind)
	}
	return nil
}

// findCancelled tells River of jobs that are being done and are to stop, here or elsewhere.
func findCancelled(ctx context.Context, q pg.Querier, notices notifications) error {
	rows, err := q.Query(ctx, "SELECT queue, id FROM river_job WHERE state = 'running' AND metadata ? 'cancel_attempted_at'")
	if err != nil {
		return fmt.Errorf("look for jobs that are cancelled: %w", err)
	}
	var kind string
	var job int64
	if _, err := pgx.ForEachRow(rows, []any{&kind, &job}, func() error {
		notices.cancel(kind, job)
		return nil
	}); err != nil {
		return fmt.Errorf("look for jobs that are cancelled: %w", err)
	}
	return nil
}
