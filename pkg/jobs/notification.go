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

// notificationBuffer is how many notifications can wait for River. Jobs whose notification does not fit are found by
// heartbeat.
const notificationBuffer = 1000

// notifications are messages for River in the form of Postgres notifications.
type notifications chan *riverdriver.Notification

// available tells River that there may be jobs of a kind.
func (n notifications) available(kind string) {
	n.add("river_insert", map[string]any{"queue": kind})
}

// cancel tells River to stop a running job.
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

// notifyingDriver is a driver whose listener receives notifications.
type notifyingDriver struct {
	driver
	notices notifications
}

func (notifyingDriver) SupportsListener() bool { return true }

func (l notifyingDriver) GetListener(*riverdriver.GetListenenerParams) riverdriver.Listener {
	return listener{l.notices}
}

// listener receives notifications without a connection to Postgres.
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

// notifyRiver makes River look for jobs when they are enqueued or their delay is over, and stop jobs that are cancelled.
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
		_ = findCancelled(looking, r.db, notices) // if this fails, heartbeat finds them
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
				if e.Job.State == rivertype.JobStateAvailable { // the delay is too short for River's scheduler
					time.AfterFunc(time.Until(e.Job.ScheduledAt), func() { notices.available(e.Job.Queue) })
				}
			case <-ctx.Done():
				return
			}
		}
	})
}

// findDue notifies River of kinds with jobs that can begin.
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

// findCancelled notifies River of running jobs that were cancelled. River ignores those of other processes.
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
