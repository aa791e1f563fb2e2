// Package host runs services in a process: it brings their schemas up to date, unlocks what they seal and sign with, has
// them answer, and does their work until the process ends.
package host

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/jobs"
	"github.com/ironplane/ironplane/pkg/postgres/migrate"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/rest/route"
	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/pkg/runtime/maintenance"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/pkg/wake"
)

// sharedMigrations are the migrations of what all services have. Their numbers are counted across the packages.
var sharedMigrations = migrate.MigrationSet{
	Table: "migration_shared",
	Files: []fs.FS{pg.Migrations, route.Migrations, events.Migrations, jobs.Migrations},
}

func migrations(d service.Definition) []migrate.MigrationSet {
	all := []migrate.MigrationSet{sharedMigrations, {Table: "migration_river", Files: []fs.FS{jobs.River}}}
	if d.Migrations != nil {
		all = append(all, migrate.MigrationSet{Table: "migration", Files: []fs.FS{d.Migrations}})
	}
	return all
}

// Migrate brings the service's schema up to date, while any number of processes does so.
func Migrate(ctx context.Context, d service.Definition, to *pool.Pool, log *slog.Logger) error {
	if err := migrate.Migrate(ctx, to, log, migrations(d)...); err != nil {
		return fmt.Errorf("migrate %s: %w", d.Name, err)
	}
	return nil
}

// Prepare fails where the service's schema lacks a migration, was restored from a backup and not taken up since, or holds
// what was sealed with another key than the box's, which is nil of a service that does not seal.
func Prepare(ctx context.Context, d service.Definition, deps service.Deps) error {
	history, err := checkSchema(ctx, d, deps.DB)
	if err == nil && deps.Entries != nil {
		deps.Entries.Bind(ctx, d.Name, history)
	}
	if err == nil && deps.Box != nil {
		err = checkKey(ctx, deps.DB, deps.Box)
	}
	if err == nil && d.Begin != nil {
		err = d.Begin(ctx, deps)
	}
	return err
}

// Unlock gives the service what it does with its process' key.
func Unlock(d service.Definition, deps *service.Deps, key *seal.ProcessKey) error {
	for _, purpose := range d.Signs { // as its Box will
		if _, err := key.Signer(seal.Signing(d.Name, purpose)); err != nil {
			return err
		}
	}
	var err error
	if d.Seals {
		if deps.Box, err = key.Box(d.Name); err != nil {
			return err
		}
	}
	if d.Fills {
		signer, err := key.Signer(keycache.Purpose)
		if err != nil {
			return err
		}
		deps.Entries = keycache.NewStore(deps.Redis, signer, deps.Log)
	}
	deps.Outboxes, deps.Inboxes = map[string]*events.Outbox{}, map[string]*events.Inbox{}
	for _, receiver := range d.Sends {
		box, err := key.Box(events.MessageKey(receiver))
		if err != nil {
			return err
		}
		deps.Outboxes[receiver] = &events.Outbox{Receiver: receiver, Box: box}
	}
	for _, source := range d.Receives {
		box, err := key.Box(events.MessageKey(d.Name))
		if err != nil {
			return err
		}
		deps.Inboxes[source] = &events.Inbox{Source: source, Box: box}
	}
	return nil
}

// Service is a service that is put together.
type Service struct {
	http.Handler
	Routes      []rest.Route
	name        string
	tasks       []service.Task
	sequencer   service.Task
	maintenance maintenance.File
	failures    *prometheus.CounterVec // loops
	checks      []health.Check
	metrics     []prometheus.Collector
	log         *slog.Logger
}

// olderKeyInterval is how long it may take until the metric tells what older keys are needed for.
const olderKeyInterval = time.Minute

// sweepInterval is how long may stay what need not be kept any more.
const sweepInterval = 10 * time.Minute

// Assemble puts the service together on its migrated schema. It answers from now on; its loops and jobs wait for Work. Assemble
// fails where the schema lacks something that a route needs.
func Assemble(
	ctx context.Context,
	d service.Definition,
	db *pool.Pool,
	deps service.Deps,
	maintenance maintenance.File,
) (*Service, error) {
	var parts service.Parts
	deps.DB.OnWake(func(topic string) { deps.Wakes.Wake(d.Name, topic) })
	if d.New != nil {
		parts = d.New(deps)
	}
	gate := &gate{log: deps.Log, maintenance: maintenance}
	sequence := events.Sequencer{DB: deps.DB, Numbered: func() { deps.Wakes.Wake(d.Name, wake.Changes) }, Interval: deps.Tuning.PollInterval}
	readers := append([]string{settings.ServiceName}, parts.Readers...)
	routes := append(append(parts.Routes, events.Feed(deps.DB, readers...)), jobs.Routes(d.Name, deps.DB, settings.ServiceName)...)
	if len(d.Sends) > 0 {
		routes = append(routes, events.MessageRoute(deps.DB, d.Sends...))
		parts.Metrics = append(parts.Metrics, messageMetrics(deps.DB)...)
	}
	for _, inbox := range deps.Inboxes {
		inbox.Handlers = parts.MessageHandlers
	}
	tasks := slices.Concat(parts.Tasks, consumerTasks(d.Name, deps, parts.Consumers), []service.Task{
		service.Every(sweepInterval, "sweep", func(ctx context.Context) error { return Sweep(ctx, deps.DB, readers...) }),
	})
	sequencer := service.Task{Name: "number changes", Run: func(ctx context.Context) error {
		return gate.noteRestored(sequence.Run(ctx))
	}}
	failed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ironplane_job_failures_total", Help: "How often what is done besides answering failed and was begun again.",
	}, []string{"job"})
	older := prometheus.NewGauge(
		prometheus.GaugeOpts{
			Name: "ironplane_older_key_uses",
			Help: "How much an older master key than the newest is still needed for: see the command reseal.",
		},
	)
	if deps.Box != nil || len(d.Sends) > 0 {
		tasks = append(tasks, service.Every(olderKeyInterval, "count what older keys are needed for", func(ctx context.Context) error {
			n, err := countOlderKeys(ctx, d, deps)
			if err == nil {
				older.Set(float64(n))
			}
			return err
		}))
	}
	if len(parts.Jobs) > 0 {
		runner := jobs.NewRunner(d.Name, deps.DB, db.Connections(), deps.Wakes, parts.Jobs, deps.Log)
		tasks = append(tasks, service.Task{Name: "do jobs", Run: runner.Work})
		parts.Metrics = append(parts.Metrics, runner.Metrics()...)
	}
	if err := rest.Check(ctx, deps.DB, routes); err != nil {
		return nil, err
	}
	gate.writes, gate.Handler = writePaths(routes), rest.NewHandler(d.Name, deps.DB, deps.Log, routes)
	handler, requests := observeRequests(gate)
	return &Service{
		Handler: handler, Routes: routes,
		name: d.Name, tasks: tasks, sequencer: sequencer, maintenance: maintenance, failures: failed, log: deps.Log,
		checks: slices.Concat(parts.Checks, consumerChecks(parts.Consumers), []health.Check{
			{Name: "postgres", Ask: db.Ping}, {Name: "changes", Ask: db.CheckWritable, Optional: true}, {Name: "history", Ask: gate.checkHistory},
		}),
		metrics: slices.Concat(
			parts.Metrics,
			[]prometheus.Collector{db, failed, older, requests, consumerMetrics(parts.Consumers)},
			databaseMetrics(db.DB),
		),
	}, nil
}

// Operations is what operators see of a process.
type Operations interface {
	prometheus.Registerer
	Check(...health.Check)
}

// Expose lets operators see the service.
func (s *Service) Expose(o Operations) {
	for _, check := range s.checks {
		check.Name = s.name + " " + check.Name
		o.Check(check)
	}
	prometheus.WrapRegistererWith(prometheus.Labels{"service": s.name}, o).MustRegister(s.metrics...)
}

// consumerTasks are the loops of consumers and inboxes.
func consumerTasks(name string, deps service.Deps, consumers []*events.Consumer) (tasks []service.Task) {
	for _, c := range consumers {
		woken := deps.Wakes.Listen(c.Source, wake.Changes)
		tasks = append(tasks, service.Task{Name: "apply the changes of " + c.String(), Run: func(ctx context.Context) error {
			return c.Consume(ctx, deps.DB, deps.Peers, woken)
		}})
	}
	for source, inbox := range deps.Inboxes {
		woken := deps.Wakes.Listen(source, events.MessageTopic(name))
		tasks = append(tasks, service.Task{Name: "take the messages of " + source, Run: func(ctx context.Context) error {
			return inbox.Run(ctx, deps.DB, deps.Peers, woken)
		}})
	}
	return tasks
}

// messageMetrics are the metrics of a service that sends messages.
func messageMetrics(db pg.Querier) []prometheus.Collector {
	return []prometheus.Collector{
		service.Gauge(
			db,
			"ironplane_messages_waiting",
			"Messages to other services that are not taken yet.",
			"SELECT count(*)::float8 FROM message",
		),
		service.Gauge(db, "ironplane_messages_oldest_seconds", "How long the oldest message waits that is not taken yet; 0: none does.",
			"SELECT coalesce(extract(epoch FROM now() - min(at)), 0)::float8 FROM message"),
	}
}

// consumerChecks are the checks that consumers get on. One that has stopped takes nothing away from who asks this service.
func consumerChecks(consumers []*events.Consumer) (checks []health.Check) {
	for _, c := range consumers {
		checks = append(
			checks,
			health.Check{Name: "changes of " + c.String(), Optional: true, Ask: func(context.Context) error { return c.Status().Reason }},
		)
	}
	return checks
}

// Work runs the service's loops until ctx ends, and returns when they have. During maintenance they pause; the sequencer
// goes on, which finds a schema that was restored.
func (s *Service) Work(ctx context.Context) {
	var working sync.WaitGroup
	working.Go(func() { s.runTask(ctx, s.sequencer) })
	s.maintenance.RunOutside(ctx, func(ctx context.Context) {
		var tasks sync.WaitGroup
		for _, task := range s.tasks {
			tasks.Go(func() { s.runTask(ctx, task) })
		}
		tasks.Wait()
	})
	working.Wait()
}

// retryInterval is how long a loop that failed waits until it is run again.
const retryInterval = time.Second

// runTask runs a loop until its context ends.
func (s *Service) runTask(ctx context.Context, task service.Task) {
	for ctx.Err() == nil {
		call := &principal.Call{RequestID: rand.Text()} // by which lines of this run are known, here and where it asks
		err := runOnce(principal.With(ctx, call), task)
		if err != nil && ctx.Err() == nil {
			s.failures.WithLabelValues(task.Name).Inc()
			id := call.RequestID
			if of, ok := errors.AsType[*events.RequestError](err); ok {
				id = cmp.Or(of.RequestID, id)
			}
			s.log.Error(task.Name, "outage", task.Name, "request_id", id, "error", err)
		}
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
		}
	}
}

func runOnce(ctx context.Context, task service.Task) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return task.Run(ctx)
}

// databaseMetrics are what a service's database says of itself.
func databaseMetrics(db *pg.DB) []prometheus.Collector {
	return []prometheus.Collector{
		service.Gauge(
			db,
			"ironplane_database_lock_waits",
			"Sessions of this service's role that wait for a lock.",
			"SELECT count(*)::float8 FROM pg_stat_activity WHERE datname = current_database() AND usename = current_user "+
				"AND wait_event_type = 'Lock'",
		),
		service.Gauge(
			db,
			"ironplane_schema_migration",
			"The number of the schema's newest migration of the service's own.",
			"SELECT max(version_id)::float8 FROM migration",
		),
		service.Gauge(
			db,
			"ironplane_schema_shared_migration",
			"The number of the schema's newest migration of what all services have.",
			"SELECT max(version_id)::float8 FROM migration_shared",
		),
	}
}
