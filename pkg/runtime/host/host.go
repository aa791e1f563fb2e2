// Package host runs services in a process. It migrates their schemas, unlocks what they seal and sign with, serves their
// routes, and runs their tasks and jobs until the process ends.
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
	"strings"
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

// sharedMigrations create the tables that every service has. The numbers are unique across these packages.
var sharedMigrations = migrate.MigrationSet{
	Table: "migration_shared",
	Files: []fs.FS{pg.Migrations, route.Migrations, events.Migrations, jobs.Migrations, ownMigrations},
}

func migrations(d service.Definition) []migrate.MigrationSet {
	all := []migrate.MigrationSet{sharedMigrations, {Table: "migration_river", Files: []fs.FS{jobs.River}}}
	if d.Migrations != nil {
		all = append(all, migrate.MigrationSet{Table: "migration", Files: []fs.FS{d.Migrations}})
	}
	return all
}

// Migrate brings the service's schema and its role's settings up to date. Any number of processes may call it at once.
func Migrate(ctx context.Context, d service.Definition, to *pool.Pool, log *slog.Logger) error {
	if err := ensureSession(ctx, d, to); err != nil {
		return fmt.Errorf("migrate %s: %w", d.Name, err)
	}
	if err := migrate.Migrate(ctx, to, log, migrations(d)...); err != nil {
		return fmt.Errorf("migrate %s: %w", d.Name, err)
	}
	return nil
}

// Prepare binds the service to its schema before it serves. It fails if the schema lacks a migration, was restored from a
// backup and not reconciled since, or was sealed with another key than the box's. The box is nil for a service that seals
// nothing.
func Prepare(ctx context.Context, d service.Definition, deps service.Deps) error {
	if err := pool.CheckSession(ctx, deps.DB, d.Name, d.Parameters); err != nil {
		return err
	}
	history, err := checkSchema(ctx, d, deps.DB)
	if err == nil && deps.Entries != nil {
		deps.Entries.Bind(ctx, d.Name, history)
	}
	if err == nil && deps.Box != nil {
		err = checkKey(ctx, deps.DB, deps.Box)
	}
	if err == nil {
		err = checkSettings(ctx, d, deps.Settings)
	}
	if err == nil && d.Begin != nil {
		err = d.Begin(ctx, deps)
	}
	return err
}

// Unlock sets in deps what the service does with its process key: sealing, signing and messages.
func Unlock(d service.Definition, deps *service.Deps, key *seal.ProcessKey) error {
	for _, purpose := range d.Signs { // fails early if the key lacks a purpose that Box needs
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

// Service is an assembled service.
type Service struct {
	http.Handler
	Routes      []rest.Route
	name        string
	tasks       []service.Task
	always      []service.Task // they run during maintenance, too
	maintenance *maintenance.Switch
	failures    *prometheus.CounterVec // of tasks, by name
	checks      []health.Check
	metrics     []prometheus.Collector
	log         *slog.Logger
}

// olderKeyInterval is how often the use of older keys is counted.
const olderKeyInterval = time.Minute

// sweepInterval is how often expired rows are deleted.
const sweepInterval = 10 * time.Minute

// Assemble puts the service together on its migrated schema. It serves requests at once; its tasks and jobs start with Work.
// Assemble fails if the schema lacks something that a route needs.
func Assemble(
	ctx context.Context,
	d service.Definition,
	db *pool.Pool,
	deps service.Deps,
	file maintenance.File,
) (*Service, error) {
	maintenance, follower, err := newSwitch(ctx, deps.DB, file)
	if err != nil {
		return nil, err
	}
	var parts service.Parts
	deps.DB.OnWake(func(topic string) { deps.Wakes.Wake(d.Name, topic) })
	if d.New != nil {
		parts = d.New(deps)
	}
	gate := &gate{log: deps.Log, maintenance: maintenance}
	sequence := events.Sequencer{DB: deps.DB, Numbered: func() { deps.Wakes.Wake(d.Name, wake.Changes) }, Interval: deps.Tuning.PollInterval}
	readers := append([]string{settings.ServiceName}, parts.Readers...)
	routes := append(
		append(parts.Routes, events.Feed(deps.DB, readers...), changesRoute(db, maintenance)),
		jobs.Routes(d.Name, deps.DB, settings.ServiceName)...)
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
	sequencer := service.Task{Name: "number-changes", Run: func(ctx context.Context) error {
		return gate.noteRestored(sequence.Run(ctx))
	}}
	failed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ironplane_job_failures_total", Help: "Failures of a task, after which it was started again.",
	}, []string{"job"})
	older, countOlder := newOlderKeyGauge(d, deps)
	if deps.Box != nil || len(d.Sends) > 0 {
		tasks = append(tasks, countOlder)
	}
	if len(parts.Jobs) > 0 {
		runner := jobs.NewRunner(d.Name, deps.DB, db.Connections(), deps.Wakes, parts.Jobs, deps.Log)
		tasks = append(tasks, service.Task{Name: "run-jobs", Run: runner.Work})
		parts.Metrics = append(parts.Metrics, runner.Metrics()...)
	}
	if err := rest.Check(ctx, deps.DB, routes); err != nil {
		return nil, err
	}
	gate.writes, gate.Handler = writePaths(routes), rest.NewHandler(d.Name, deps.DB, deps.Log, routes)
	handler, requests := observeRequests(gate)
	return &Service{
		Handler: handler, Routes: routes,
		name: d.Name, tasks: tasks, always: []service.Task{sequencer, follower}, maintenance: maintenance, failures: failed, log: deps.Log,
		checks: slices.Concat(parts.Checks, consumerChecks(parts.Consumers), databaseChecks(db, gate)),
		metrics: slices.Concat(
			parts.Metrics,
			[]prometheus.Collector{db, failed, older, requests, consumerMetrics(parts.Consumers)},
			databaseMetrics(db.DB),
		),
	}, nil
}

// newOlderKeyGauge returns the gauge of values with older keys, and the task that counts them.
func newOlderKeyGauge(d service.Definition, deps service.Deps) (prometheus.Gauge, service.Task) {
	older := prometheus.NewGauge(
		prometheus.GaugeOpts{
			Name: "ironplane_older_key_uses",
			Help: "Values sealed or signed with an older master key than the newest: see the command reseal.",
		},
	)
	return older, service.Every(olderKeyInterval, "count-older-keys", func(ctx context.Context) error {
		n, err := countOlderKeys(ctx, d, deps)
		if err == nil {
			older.Set(float64(n))
		}
		return err
	})
}

// databaseChecks returns checks of the service's database.
func databaseChecks(db *pool.Pool, gate *gate) []health.Check {
	return []health.Check{
		{Name: "postgres", Ask: db.Ping},
		{Name: "writable", Ask: db.CheckWritable, ForChanges: true},
		{Name: "history", Ask: gate.checkHistory},
	}
}

// Operations is where a service registers its metrics and health checks.
type Operations interface {
	prometheus.Registerer
	Check(...health.Check)
}

// Expose registers the service's metrics and health checks.
func (s *Service) Expose(o Operations) {
	for _, check := range s.checks {
		check.Name = s.name + "-" + check.Name
		o.Check(check)
	}
	prometheus.WrapRegistererWith(prometheus.Labels{"service": s.name}, o).MustRegister(s.metrics...)
}

// consumerTasks returns the tasks of consumers and inboxes.
func consumerTasks(name string, deps service.Deps, consumers []*events.Consumer) (tasks []service.Task) {
	for _, c := range consumers {
		woken := deps.Wakes.Listen(c.Source, wake.Changes)
		tasks = append(
			tasks,
			service.Task{Name: applyName(c), Run: func(ctx context.Context) error {
				return c.Consume(ctx, deps.DB, deps.Peers, woken)
			}},
		)
	}
	for source, inbox := range deps.Inboxes {
		woken := deps.Wakes.Listen(source, events.MessageTopic(name))
		tasks = append(tasks, service.Task{Name: "receive-messages-" + source, Run: func(ctx context.Context) error {
			return inbox.Run(ctx, deps.DB, deps.Peers, woken)
		}})
	}
	return tasks
}

// applyName names a consumer's task and check: apply-changes-pxe, or apply-changes-pxe-webhooks.
func applyName(c *events.Consumer) string {
	return "apply-changes-" + strings.ReplaceAll(c.String(), "/", "-")
}

// messageMetrics returns the metrics of a service that sends messages.
func messageMetrics(db pg.Querier) []prometheus.Collector {
	return []prometheus.Collector{
		service.Gauge(
			db,
			"ironplane_messages_waiting",
			"Messages to other services that are not received yet.",
			"SELECT count(*)::float8 FROM message",
		),
		service.Gauge(db, "ironplane_messages_oldest_seconds", "Age of the oldest message that is not received yet; 0 if there is none.",
			"SELECT coalesce(extract(epoch FROM now() - min(at)), 0)::float8 FROM message"),
	}
}

// consumerChecks returns a check for each consumer. They are optional: a stopped consumer does not keep the service from
// serving.
func consumerChecks(consumers []*events.Consumer) (checks []health.Check) {
	for _, c := range consumers {
		checks = append(
			checks,
			health.Check{Name: applyName(c), Optional: true, Ask: func(context.Context) error { return c.Status().Reason }},
		)
	}
	return checks
}

// Work runs the service's tasks until ctx ends, and returns when they have ended. Tasks pause during maintenance, except the
// sequencer, which detects a restored schema, and the task that follows the maintenance.
func (s *Service) Work(ctx context.Context) {
	var working sync.WaitGroup
	for _, task := range s.always {
		working.Go(func() { s.runTask(ctx, task) })
	}
	s.maintenance.RunOutside(ctx, func(ctx context.Context) {
		var tasks sync.WaitGroup
		for _, task := range s.tasks {
			tasks.Go(func() { s.runTask(ctx, task) })
		}
		tasks.Wait()
	})
	working.Wait()
}

// retryInterval is the pause before a task is run again.
const retryInterval = time.Second

// runTask runs a task again and again until its context ends. Failures are counted and logged.
func (s *Service) runTask(ctx context.Context, task service.Task) {
	for ctx.Err() == nil {
		call := &principal.Call{RequestID: rand.Text()} // correlates the log lines of this run, here and in the services that it asks
		err := runOnce(principal.NewContext(ctx, call), task)
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

// databaseMetrics returns metrics that are read from a service's database.
func databaseMetrics(db *pg.DB) []prometheus.Collector {
	return []prometheus.Collector{
		service.Gauge(
			db,
			"ironplane_database_clock_timestamp_seconds",
			"The time by the database's clock.",
			"SELECT extract(epoch FROM clock_timestamp())::float8",
		),
		service.Gauge(
			db,
			"ironplane_database_server_connections",
			"Connections of all programs to the service's database server.",
			"SELECT sum(numbackends)::float8 FROM pg_stat_database",
		),
		service.Gauge(
			db,
			"ironplane_database_server_connections_max",
			"Largest number of connections to the service's database server, without those that it keeps for superusers.",
			"SELECT current_setting('max_connections')::float8 - current_setting('superuser_reserved_connections')::float8",
		),
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
			"Number of the newest applied migration of the service.",
			"SELECT max(version_id)::float8 FROM migration",
		),
		service.Gauge(
			db,
			"ironplane_schema_shared_migration",
			"Number of the newest applied migration of the tables that all services have.",
			"SELECT max(version_id)::float8 FROM migration_shared",
		),
	}
}
