package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/wake"
)

const (
	// drainTimeout is how long jobs that are being done may take once the process is told to stop, or maintenance begins. What
	// is not done by then is begun again later.
	drainTimeout = 5 * time.Second
	// heartbeatInterval is how often a runner says that it is there, and deadTimeout after how long it is not.
	heartbeatInterval, deadTimeout = 5 * time.Second, 30 * time.Second
	// fetchCooldown is how long a worker that has done a job may wait for the next one, where there are more.
	fetchCooldown = 10 * time.Millisecond
	// fetchInterval is how often River itself looks for jobs of a kind. The runner, which looks for those of all kinds at once
	// whenever it says that it is there, and whoever enqueues one tell it sooner.
	fetchInterval  = time.Minute
	defaultTimeout = time.Minute
	defaultWorkers = 4
)

// Runner does the jobs of a service in one process.
type Runner struct {
	db        *pg.DB
	pool      *pgxpool.Pool
	kinds     []service.Job
	enqueued  map[string]<-chan struct{} // by kind
	cancelled <-chan struct{}
	log       *slog.Logger
	attempts  *prometheus.CounterVec
}

// NewRunner makes one that does jobs of these kinds of a service, and is woken for them by the bus.
func NewRunner(name string, db *pg.DB, pool *pgxpool.Pool, wakes *wake.Bus, kinds []service.Job, log *slog.Logger) *Runner {
	r := &Runner{
		db:        db,
		pool:      pool,
		kinds:     kinds,
		enqueued:  map[string]<-chan struct{}{},
		cancelled: wakes.Listen(name, cancelled),
		log:       log,
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ironplane_job_attempts_total", Help: "Attempts to do a job, by what came of them: done, failed, later, or given up.",
		}, []string{"kind", "outcome"}),
	}
	for _, kind := range kinds {
		r.enqueued[kind.Kind] = wakes.Listen(name, enqueued(kind.Kind))
	}
	return r
}

// Metrics are what operators see of it.
func (r *Runner) Metrics() []prometheus.Collector {
	return []prometheus.Collector{
		r.attempts,
		service.Gauge(r.db, "ironplane_jobs_late_seconds", "How long a job has been waiting that could have begun.",
			"SELECT coalesce(extract(epoch FROM now() - min(scheduled_at)), 0)::float8 FROM river_job WHERE state = 'available'"),
	}
}

// Work does jobs until ctx ends, and then has those finish that are being done.
func (r *Runner) Work(ctx context.Context) error {
	workers, queues := river.NewWorkers(), map[string]river.QueueConfig{}
	for _, kind := range r.kinds {
		river.AddWorkerArgs(workers, arguments{kind: kind.Kind}, &worker{Job: kind, Runner: r})
		queues[kind.Kind] = river.QueueConfig{MaxWorkers: cmp.Or(kind.Workers, defaultWorkers)}
	}
	id := uuid.NewString()
	working, stop := context.WithCancel(ctx)
	defer stop()
	notices := make(notifications, notificationBuffer)
	client, err := river.NewClient(notifyingDriver{driver{riverpgxv5.New(r.pool)}, notices}, &river.Config{
		ID:                   id,
		Workers:              workers,
		Queues:               queues,
		Logger:               slog.New(warnings{r.log.Handler()}),
		FetchCooldown:        fetchCooldown,
		FetchPollInterval:    fetchInterval,
		SoftStopTimeout:      drainTimeout,
		JobTimeout:           -1,
		RescueStuckJobsAfter: 10 * 365 * 24 * time.Hour, // it goes by the time that a job has taken, and not by whether it is being done
		ReindexerIndexNames:  []string{},
	})
	if err != nil {
		return fmt.Errorf("prepare to do jobs: %w", err)
	}
	if err := r.heartbeat(ctx, id, notices); err != nil { // a job's runner is always known
		return err
	}
	if err := client.Start(working); err != nil {
		return fmt.Errorf("begin to do jobs: %w", err)
	}
	var notifying sync.WaitGroup
	r.notifyRiver(working, &notifying, client, notices)
	err = r.keepAlive(working, id, notices)
	stop()
	<-client.Stopped()
	notifying.Wait()
	return err
}

// warnings leaves out what River says of its ordinary life.
type warnings struct{ slog.Handler }

func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.Handler.Enabled(ctx, level)
}
func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs)}
}
func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }

// keepAlive watches until ctx ends, or others take this runner for dead.
func (r *Runner) keepAlive(ctx context.Context, id string, notices notifications) error {
	tick := time.NewTicker(heartbeatInterval)
	defer tick.Stop()
	seen := time.Now()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		began := time.Now()
		err := r.heartbeat(ctx, id, notices)
		if err == nil {
			seen = began
		} else if ctx.Err() == nil && time.Since(seen) > deadTimeout/2 {
			return err
		}
	}
}

// heartbeat says that this runner is there, and has jobs begun again of those that are not. After an outage of the database nobody
// has been seen for a while: so it waits as long as others have to be seen. It also looks for what nobody has told of.
func (r *Runner) heartbeat(ctx context.Context, id string, notices notifications) error {
	ctx, cancel := context.WithTimeout(ctx, heartbeatInterval)
	defer cancel()
	return r.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("who does jobs is no change")
		_, err := tx.Exec(ctx, `INSERT INTO job_runner (id) VALUES ($1) ON CONFLICT (id) DO UPDATE SET seen = now(),
			since = CASE WHEN job_runner.seen < now() - $2::interval / 2 THEN now() ELSE job_runner.since END`, id, deadTimeout)
		if err != nil {
			return fmt.Errorf("say that jobs are done here: %w", err)
		}
		if _, err := tx.Exec(ctx, "DELETE FROM job_runner WHERE seen < now() - 100 * $1::interval", deadTimeout); err != nil {
			return fmt.Errorf("forget who did jobs: %w", err)
		}
		rescued, err := tx.Exec(ctx, `
			UPDATE river_job SET state = ended.state, finalized_at = CASE WHEN ended.state <> 'available' THEN now() END, scheduled_at = now(),
				errors = array_append(errors, jsonb_build_object('at', now(), 'attempt', attempt, 'error', 'the process ended that was doing it', 'trace', ''))
			FROM (SELECT id, (CASE WHEN metadata ? 'cancel_attempted_at' THEN 'cancelled' WHEN attempt >= max_attempts THEN 'discarded' ELSE 'available' END)::river_job_state AS state
				FROM river_job j WHERE j.state = 'running' AND j.attempted_at < now() - $2::interval
					AND j.attempted_by[cardinality(j.attempted_by)] NOT IN (SELECT id FROM job_runner WHERE seen > now() - $2::interval)
					AND EXISTS (SELECT FROM job_runner WHERE id = $1 AND since < now() - $2::interval) FOR UPDATE SKIP LOCKED) ended
			WHERE river_job.id = ended.id`, id, deadTimeout)
		if err != nil {
			return fmt.Errorf("begin jobs again of processes that ended: %w", err)
		}
		if n := rescued.RowsAffected(); n > 0 {
			r.log.Warn("jobs are begun again: the process ended that was doing them", "jobs", n)
		}
		return errors.Join(r.findDue(ctx, tx, notices), findCancelled(ctx, tx, notices))
	})
}

// worker does jobs of one kind for River.
type worker struct {
	river.WorkerDefaults[arguments]
	service.Job
	*Runner
}

func (w *worker) Timeout(*river.Job[arguments]) time.Duration {
	return cmp.Or(w.Job.Timeout, defaultTimeout)
}

func (w *worker) NextRetry(job *river.Job[arguments]) time.Time {
	if w.Backoff == nil {
		return time.Time{}
	}
	return time.Now().Add(w.Backoff(job.Attempt))
}

func (w *worker) Work(ctx context.Context, job *river.Job[arguments]) error {
	last := job.Attempt >= job.MaxAttempts
	var kept metadata
	err := json.Unmarshal(job.Metadata, &kept)
	if err != nil {
		err = fmt.Errorf("read who the job is done for: %w", err)
	} else {
		ctx = principal.With(ctx, &principal.Call{Principal: kept.Caller.Principal, IP: kept.Caller.IP, RequestID: kept.Caller.RequestID})
		err = w.attempt(ctx, job, kept.Progress, last)
	}
	cause := context.Cause(ctx)
	stopping := cause != nil && !errors.Is(cause, context.DeadlineExceeded) && !errors.Is(cause, rivertype.ErrJobCancelledRemotely)
	later, isLater := errors.AsType[*river.JobSnoozeError](err)
	_, isNever := errors.AsType[*river.JobCancelError](err)
	outcome, level := "failed", slog.LevelWarn
	switch {
	case err == nil:
		outcome = "done"
	case isLater:
		outcome, err = "later", later
	case stopping:
		outcome, err = "later", Snooze(0)
	case last, isNever:
		outcome, level = "given up", slog.LevelError
	}
	w.attempts.WithLabelValues(w.Kind, outcome).Inc()
	if outcome == "failed" || outcome == "given up" {
		w.log.Log(
			ctx,
			level,
			"a job failed",
			"outage",
			"jobs of the kind "+w.Kind,
			"job",
			job.ID,
			"attempt",
			job.Attempt,
			"last",
			level == slog.LevelError,
			"request_id",
			kept.Caller.RequestID,
			"error",
			err,
		)
	}
	return err
}

func (w *worker) attempt(ctx context.Context, job *river.Job[arguments], earlier json.RawMessage, last bool) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return w.Do(ctx, &service.Attempt{Job: job.ID, Number: job.Attempt, Last: last, Args: job.Args.text, Earlier: earlier,
		Progress: func(ctx context.Context, progress any) error {
			_, err := river.ClientFromContext[pgx.Tx](ctx).JobUpdate(ctx, job.ID, &river.JobUpdateParams{Output: progress})
			return err
		}})
}
