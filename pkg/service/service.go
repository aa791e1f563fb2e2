// Package service is what a service is, in a process of its own or with others in one: its routes, its jobs, and how it
// follows what others change.
package service

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/health"
	"github.com/ironplane/ironplane/pkg/keycache"
	"github.com/ironplane/ironplane/pkg/maintenance"
	"github.com/ironplane/ironplane/pkg/mesh"
	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/pool"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/schema"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
)

// Definition is what a service is, whether it runs in a process of its own or with others in one.
type Definition struct {
	Name       string
	Migrations fs.FS                  // nil: none of its own
	Seals      bool                   // whether it needs a Box
	Sealed     []string               // the columns that its Box seals: dhcp_server.http_api_key
	Signs      []string               // what its Box signs
	Signed     func(*seal.Box) Signed // what of that stays; nil: nothing
	Fills      bool                   // whether it fills entries of keycache
	New        func(Deps) Parts       // nil: nothing yet
	// Begin does, on a schema that is up to date, what has to be done before the service serves; nil: nothing.
	Begin    func(context.Context, Deps) error
	Commands []Command // of its program, besides those that all have
	// RecordSkip records, in the unit of work that skips them, changes of another service; nil: events.RecordSkip does.
	RecordSkip func(ctx context.Context, d Deps, tx *pg.Tx, skipped events.Span) error
}

// shared are the migrations of what all services have. Their numbers are counted across the packages.
var shared = schema.MigrationSet{Table: "migration_shared", Files: []fs.FS{pg.Migrations, rest.Migrations, events.Migrations}}

func (d Definition) migrations() []schema.MigrationSet {
	all := []schema.MigrationSet{shared}
	if d.Migrations != nil {
		all = append(all, schema.MigrationSet{Table: "migration", Files: []fs.FS{d.Migrations}})
	}
	return all
}

// Migrate brings the service's schema up to date, while any number of processes does so.
func (d Definition) Migrate(ctx context.Context, to *pool.Pool) error {
	if err := schema.Migrate(ctx, to, d.migrations()...); err != nil {
		return fmt.Errorf("migrate %s: %w", d.Name, err)
	}
	return nil
}

// Ready fails where the service's schema lacks a migration, was restored from a backup and not taken up since, or holds
// what was sealed with another key than the box's, which is nil of a service that does not seal.
func (d Definition) Ready(ctx context.Context, deps Deps) error {
	err := schema.Migrated(ctx, deps.DB, d.migrations()...)
	if err == nil {
		err = events.Intact(ctx, deps.DB)
	}
	if err == nil && deps.Box != nil {
		err = checkKey(ctx, deps.DB, deps.Box)
	}
	if err == nil && d.Begin != nil {
		err = d.Begin(ctx, deps)
	}
	return err
}

// Command is something that a service does on demand. It is given a DB, a Box and Settings.
type Command struct {
	Name, Summary string
	Run           func(ctx context.Context, d Deps, screen io.Writer) error
}

// Settings are what services are told by who runs them.
type Settings struct {
	APIURL      string           `env:"IRONPLANE_API_URL" doc:"where callers reach the API: https://api.example.com"`
	ClientURL   string           `env:"IRONPLANE_CLIENT_URL" doc:"where clients reach their panel"`
	AdminURL    string           `env:"IRONPLANE_ADMIN_URL" doc:"where admins reach theirs"`
	Maintenance maintenance.File `env:"IRONPLANE_MAINTENANCE" doc:"a file: as long as it is there, changes are refused, for the reason that it holds, and jobs pause"`
	LogAnchor   string           `env:"IRONPLANE_LOG_ANCHOR" doc:"for verify: what it printed once, to find that the log was rolled back"`
}

// Deps are what a service is given.
type Deps struct {
	DB      *pg.DB // its migrated schema
	Peers   mesh.Peers
	Redis   redis.UniversalClient
	Entries *keycache.Store // nil where the service does not fill any
	Box     *seal.Box       // nil where the service does not seal
	Settings
	Given map[string]string // variables of the environment that count until a setting does, and what they say
	Log   *slog.Logger
}

// Purposes are what the service needs derived keys for.
func (d Definition) Purposes() (all []seal.Purpose) {
	if d.Seals {
		all = append(all, seal.Sealing(d.Name))
	}
	for _, what := range d.Signs {
		all = append(all, seal.Signing(d.Name, what))
	}
	if d.Fills {
		all = append(all, keycache.Purpose)
	}
	return all
}

// NewBox makes the service's box, if it needs one, for who holds the master key.
func (d Definition) NewBox(masterKey secret.String) (*seal.Box, error) {
	if !d.Seals {
		return nil, nil
	}
	key, err := seal.Derive(masterKey, d.Name, d.Purposes()...)
	if err != nil {
		return nil, err
	}
	return key.Box(d.Name)
}

// Unlock gives the service what it does with its process' key.
func (d Definition) Unlock(deps *Deps, key *seal.ProcessKey) error {
	for _, what := range d.Signs { // as its Box will
		if _, err := key.Signer(seal.Signing(d.Name, what)); err != nil {
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
	return nil
}

// SkipChange lets the service go on behind changes of another one that it cannot apply. It needs a DB and a Box.
func (d Definition) SkipChange(ctx context.Context, deps Deps, skipped events.Span) error {
	record := events.RecordSkip
	if d.RecordSkip != nil {
		record = func(ctx context.Context, tx *pg.Tx, skipped events.Span) error {
			return d.RecordSkip(ctx, deps, tx, skipped)
		}
	}
	return events.Skip(ctx, deps.DB, skipped, record)
}

// Parts are what a service consists of.
type Parts struct {
	Routes    []rest.Route
	Jobs      []Job
	Readers   []string // the services that may read its changes, besides the one that keeps the log
	Consumers []*events.Consumer
	Checks    []health.Check         // of what it depends on besides its database
	Metrics   []prometheus.Collector // which get the service's name as a label
}

// Job is what a service does besides answering. Run works until its context ends, as it does when maintenance begins; it
// may end before, and is run again.
type Job struct {
	Name string
	Run  func(context.Context) error
}

// Every is a job that does something now and then.
func Every(pause time.Duration, name string, do func(context.Context) error) Job {
	return Job{name, func(ctx context.Context) error {
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			if err := do(ctx); err != nil {
				return err
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return nil
			}
		}
	}}
}

// Service is a service that is put together.
type Service struct {
	http.Handler
	Routes      []rest.Route
	name        string
	jobs        []Job
	sequencer   Job
	maintenance maintenance.File
	failed      *prometheus.CounterVec // jobs
	checks      []health.Check
	metrics     []prometheus.Collector
	log         *slog.Logger
}

// Keeper is the service that keeps the log: it reads the changes of all.
const Keeper = "system"

// olderPause is how long it may take until the metric tells what older keys are needed for.
const olderPause = time.Minute

// sweepPause is how long may stay what need not be kept any more.
const sweepPause = 10 * time.Minute

// Assemble puts the service together on its migrated schema. It answers from now on; its jobs wait for Work.
func (d Definition) Assemble(on *pool.Pool, deps Deps) *Service {
	deps.Log = deps.Log.With("service", d.Name)
	var parts Parts
	if d.New != nil {
		parts = d.New(deps)
	}
	gate := &gate{log: deps.Log, maintenance: deps.Maintenance}
	sequence := events.Sequencer(d.Name, deps.DB, cache.NewLink(deps.Redis, "events", deps.Log))
	readers := append([]string{Keeper}, parts.Readers...)
	routes := append(parts.Routes, events.Feed(deps.DB, readers...))
	jobs := slices.Concat(parts.Jobs, consuming(deps, parts.Consumers), []Job{
		Every(sweepPause, "sweep kept answers", func(ctx context.Context) error { return rest.Sweep(ctx, deps.DB) }),
		Every(sweepPause, "forget changes", func(ctx context.Context) error { return events.Keep(ctx, deps.DB, readers...) }),
	})
	sequencer := Job{"number changes", func(ctx context.Context) error {
		return gate.note(sequence(ctx))
	}}
	failed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ironplane_job_failures_total", Help: "How often what is done besides answering failed and was begun again.",
	}, []string{"job"})
	older := prometheus.NewGauge(prometheus.GaugeOpts{Name: "ironplane_older_key_uses", Help: "How much an older master key than the newest is still needed for: see the command reseal."})
	if deps.Box != nil {
		jobs = append(jobs, Every(olderPause, "count what older keys are needed for", func(ctx context.Context) error {
			n, err := d.Older(ctx, deps.DB, deps.Box)
			if err == nil {
				older.Set(float64(n))
			}
			return err
		}))
	}
	gate.Handler = rest.NewHandler(d.Name, deps.DB, deps.Log, routes)
	handler, requests := observed(gate)
	return &Service{
		Handler: handler, Routes: routes,
		name: d.Name, jobs: jobs, sequencer: sequencer, maintenance: deps.Maintenance, failed: failed, log: deps.Log,
		checks: slices.Concat(parts.Checks, following(parts.Consumers), []health.Check{
			{Name: "postgres", Ask: on.Ping}, {Name: "changes", Ask: on.Writable, Optional: true}, {Name: "history", Ask: gate.ask},
		}),
		metrics: append(parts.Metrics, on, failed, older, requests, events.Collector(parts.Consumers),
			pool.Gauge(on.DB, "ironplane_schema_migration", "The number of the schema's newest migration of the service's own.", "SELECT max(version_id)::float8 FROM migration"),
			pool.Gauge(on.DB, "ironplane_schema_shared_migration", "The number of the schema's newest migration of what all services have.", "SELECT max(version_id)::float8 FROM migration_shared")),
	}
}

// Operations is what operators see of a process.
type Operations interface {
	prometheus.Registerer
	Check(...health.Check)
}

// Show lets operators see the service.
func (s *Service) Show(o Operations) {
	for _, check := range s.checks {
		check.Name = s.name + " " + check.Name
		o.Check(check)
	}
	prometheus.WrapRegistererWith(prometheus.Labels{"service": s.name}, o).MustRegister(s.metrics...)
}

// consuming are the jobs of consumers, and what wakes them.
func consuming(deps Deps, consumers []*events.Consumer) (jobs []Job) {
	wakes := map[string]chan struct{}{}
	for _, c := range consumers {
		wake := make(chan struct{}, 1)
		wakes[c.Source] = wake
		jobs = append(jobs, Job{"apply the changes of " + c.Source, func(ctx context.Context) error {
			return c.Consume(ctx, deps.DB, deps.Peers, wake)
		}})
	}
	if len(consumers) > 0 {
		jobs = append(jobs, Job{"listen for changes", func(ctx context.Context) error { return events.Wake(ctx, deps.Redis, wakes) }})
	}
	return jobs
}

// following are the checks that consumers get on. One that has stopped takes nothing away from who asks this service.
func following(consumers []*events.Consumer) (checks []health.Check) {
	for _, c := range consumers {
		checks = append(checks, health.Check{Name: "changes of " + c.Source, Optional: true, Ask: func(context.Context) error { return c.Status().Reason }})
	}
	return checks
}

// Work does the service's jobs until ctx ends, and returns when they have. During maintenance they pause; the sequencer
// goes on, which finds a schema that was restored.
func (s *Service) Work(ctx context.Context) {
	var working sync.WaitGroup
	working.Go(func() { s.keep(ctx, s.sequencer) })
	s.maintenance.Outside(ctx, func(ctx context.Context) {
		var jobs sync.WaitGroup
		for _, job := range s.jobs {
			jobs.Go(func() { s.keep(ctx, job) })
		}
		jobs.Wait()
	})
	working.Wait()
}

// retryPause is how long a job that failed waits until it is run again.
const retryPause = time.Second

// keep runs a job until its context ends.
func (s *Service) keep(ctx context.Context, job Job) {
	for ctx.Err() == nil {
		err := run(ctx, job)
		if err != nil && ctx.Err() == nil {
			s.failed.WithLabelValues(job.Name).Inc()
			s.log.Error(job.Name, "outage", job.Name, "error", err)
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
		}
	}
}

func run(ctx context.Context, job Job) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return job.Run(ctx)
}
