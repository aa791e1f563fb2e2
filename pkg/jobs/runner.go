package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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
	"github.com/ironplane/ironplane/pkg/runtime/tracing"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/wake"
)

const (
	// drainTimeout is how long running jobs may take after the process is told to stop or maintenance begins. Jobs that
	// are not done by then start again later.
	drainTimeout = 5 * time.Second
	// heartbeatInterval is how often a runner reports that it is alive. A runner without a report for deadTimeout is
	// dead.
	heartbeatInterval, deadTimeout = 5 * time.Second, 30 * time.Second
	// fetchCooldown is how long a worker waits between two jobs if there are more.
	fetchCooldown = 10 * time.Millisecond
	// fetchInterval is how often River itself looks for jobs of a kind. Wake-ups from Enqueue and the runner's
	// heartbeat, which looks for all kinds at once, come sooner.
	fetchInterval  = time.Minute
	defaultTimeout = time.Minute
	defaultWorkers = 4
)

// Runner runs a service's jobs in one process.
type Runner struct {
	db        *pg.DB
	pool      *pgxpool.Pool
	kinds     []service.Job
	enqueued  map[string]<-chan struct{} // by kind
	cancelled <-chan struct{}
	log       *slog.Logger
	attempts  *prometheus.CounterVec

	mu       sync.Mutex
	failedAt map[string]time.Time // of the kinds with an outage, when an attempt last failed
}

// NewRunner returns a runner for jobs of these kinds. The bus wakes it when jobs are enqueued.
func NewRunner(name string, db *pg.DB, pool *pgxpool.Pool, wakes *wake.Bus, kinds []service.Job, log *slog.Logger) *Runner {
	r := &Runner{
		db:        db,
		pool:      pool,
		kinds:     kinds,
		enqueued:  map[string]<-chan struct{}{},
		cancelled: wakes.Listen(name, cancelled),
		log:       log,
		failedAt:  map[string]time.Time{},
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ironplane_job_attempts_total", Help: "Attempts to run a job, by outcome: done, failed, later or given-up.",
		}, []string{"kind", "outcome"}),
	}
	for _, kind := range kinds {
		r.enqueued[kind.Kind] = wakes.Listen(name, enqueued(kind.Kind))
	}
	return r
}

// Metrics returns the runner's metrics.
func (r *Runner) Metrics() []prometheus.Collector {
	return []prometheus.Collector{
		r.attempts,
		service.Gauge(r.db, "ironplane_jobs_late_seconds", "How long the oldest waiting job could have been running.",
			"SELECT coalesce(extract(epoch FROM now() - min(scheduled_at)), 0)::float8 FROM river_job WHERE state = 'available'"),
	}
}

// Work runs jobs until ctx ends, and then waits for the running ones.
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
		RescueStuckJobsAfter: 10 * 365 * 24 * time.Hour, // River would rescue long jobs that still run; heartbeat rescues those of dead runners
		ReindexerIndexNames:  []string{},
	})
	if err != nil {
		return fmt.Errorf("prepare the job runner: %w", err)
	}
	if err := r.heartbeat(ctx, id, notices); err != nil { // before the first job: a running job's runner must be known
		return err
	}
	if err := client.Start(working); err != nil {
		return fmt.Errorf("start the job runner: %w", err)
	}
	var notifying sync.WaitGroup
	r.notifyRiver(working, &notifying, client, notices)
	err = r.keepAlive(working, id, notices)
	stop()
	<-client.Stopped()
	notifying.Wait()
	return err
}

// warnings drops River's log lines below the level of a warning.
type warnings struct{ slog.Handler }

func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.Handler.Enabled(ctx, level)
}
func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs)}
}
func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }

// keepAlive sends heartbeats until ctx ends. It returns an error before other runners would take this one for dead.
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
			err = r.logRecovered(ctx)
		}
		if err != nil && ctx.Err() == nil && time.Since(seen) > deadTimeout/2 {
			return err
		}
	}
}

// outageOf names the outage of a kind in the log.
func outageOf(kind string) string { return "jobs of the kind " + kind }

// recoveredSQL selects whether jobs of the kind $1 work again: one was done after the failure at $2, and none that failed is to be tried
// again, in whatever process.
const recoveredSQL = `SELECT EXISTS (SELECT FROM river_job WHERE state = 'completed' AND finalized_at > $2 AND queue = $1) AND NOT EXISTS (
	SELECT FROM river_job WHERE state IN ('available', 'retryable', 'running', 'scheduled') AND queue = $1 AND cardinality(errors) > 0)`

// logRecovered logs the outages that are over.
func (r *Runner) logRecovered(ctx context.Context) error {
	r.mu.Lock()
	failed := maps.Clone(r.failedAt)
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, heartbeatInterval)
	defer cancel()
	for kind, at := range failed {
		var recovered bool
		if err := r.db.QueryRow(ctx, recoveredSQL, kind, at).Scan(&recovered); err != nil {
			return fmt.Errorf("find whether jobs work again: %w", err)
		}
		r.mu.Lock()
		if recovered = recovered && r.failedAt[kind].Equal(at); recovered {
			delete(r.failedAt, kind)
		}
		r.mu.Unlock()
		if recovered {
			r.log.Warn("outage is over", "recovered", outageOf(kind))
		}
	}
	return nil
}

// heartbeat reports that this runner is alive, and restarts the jobs of dead runners. After an outage of the database no
// runner has reported for a while, so a runner restarts jobs only when it has been alive for deadTimeout itself.
// heartbeat also looks for jobs whose wake-up was lost.
func (r *Runner) heartbeat(ctx context.Context, id string, notices notifications) error {
	ctx, cancel := context.WithTimeout(ctx, heartbeatInterval)
	defer cancel()
	return r.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("runners are no items")
		_, err := tx.Exec(ctx, `INSERT INTO job_runner (id) VALUES ($1) ON CONFLICT (id) DO UPDATE SET seen = now(),
			since = CASE WHEN job_runner.seen < now() - $2::interval / 2 THEN now() ELSE job_runner.since END`, id, deadTimeout)
		if err != nil {
			return fmt.Errorf("report that the runner is alive: %w", err)
		}
		if _, err := tx.Exec(ctx, "DELETE FROM job_runner WHERE seen < now() - 100 * $1::interval", deadTimeout); err != nil {
			return fmt.Errorf("delete dead runners: %w", err)
		}
		rescued, err := tx.Exec(ctx, `
			UPDATE river_job SET state = ended.state, finalized_at = CASE WHEN ended.state <> 'available' THEN now() END, scheduled_at = now(),
				errors = array_append(errors, jsonb_build_object('at', now(), 'attempt', attempt, 'error', 'the process that ran the job has ended', 'trace', ''))
			FROM (SELECT id, (CASE WHEN metadata ? 'cancel_attempted_at' THEN 'cancelled' WHEN attempt >= max_attempts THEN 'discarded' ELSE 'available' END)::river_job_state AS state
				FROM river_job j WHERE j.state = 'running' AND j.attempted_at < now() - $2::interval
					AND j.attempted_by[cardinality(j.attempted_by)] NOT IN (SELECT id FROM job_runner WHERE seen > now() - $2::interval)
					AND EXISTS (SELECT FROM job_runner WHERE id = $1 AND since < now() - $2::interval) FOR UPDATE SKIP LOCKED) ended
			WHERE river_job.id = ended.id`, id, deadTimeout)
		if err != nil {
			return fmt.Errorf("restart jobs of dead runners: %w", err)
		}
		if n := rescued.RowsAffected(); n > 0 {
			r.log.Warn("jobs of dead processes restarted", "jobs", n)
		}
		return errors.Join(r.findDue(ctx, tx, notices), findCancelled(ctx, tx, notices))
	})
}

// worker runs jobs of one kind for River.
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

// Work runs one attempt of a job as its caller, and tells River what follows: the end, a retry, a later time or giving up.
func (w *worker) Work(ctx context.Context, job *river.Job[arguments]) error {
	last := job.Attempt >= job.MaxAttempts
	var kept metadata
	endSpan := func(error) {}
	err := json.Unmarshal(job.Metadata, &kept)
	if err != nil {
		err = fmt.Errorf("read the job's caller: %w", err)
	} else {
		ctx = principal.NewContext(ctx, &principal.Call{Principal: kept.Caller.Principal, IP: kept.Caller.IP, RequestID: kept.Caller.RequestID})
		ctx, endSpan = tracing.Process(ctx, "jobs "+w.Kind, kept.Traceparent)
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
		outcome, level = "given-up", slog.LevelError
	}
	w.attempts.WithLabelValues(w.Kind, outcome).Inc()
	if outcome == "done" || outcome == "later" {
		endSpan(nil)
	} else {
		endSpan(err)
		w.mu.Lock()
		w.failedAt[w.Kind] = time.Now()
		w.mu.Unlock()
		w.log.Log(
			ctx,
			level,
			"a job failed",
			"outage",
			outageOf(w.Kind),
			"recovers",
			true,
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
