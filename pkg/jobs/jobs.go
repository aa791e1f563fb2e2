// Package jobs runs work that outlives its request. River keeps the jobs in the service's schema.
package jobs

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"path"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/runtime/tracing"
	"github.com/ironplane/ironplane/pkg/service"
)

// Migrations are the migrations of this package's own tables.
//
//go:embed migrations/*.sql
var Migrations embed.FS

// River has River's own migrations in the form of goose.
var River fs.GlobFS = gooseMigrations{(*riverpgxv5.Driver)(nil).GetMigrationFS("main")}

// gooseMigrations presents River's migrations as goose expects them: with other names, and without a schema.
type gooseMigrations struct{ fs.FS }

const (
	riverFolder, riverEnd = "migration/main/", ".up.sql"
	folder                = "migrations/"
	schemaTemplate        = "/* TEMPLATE: schema */" // empty: the schema is in the search path
)

func (r gooseMigrations) Glob(pattern string) (names []string, err error) {
	all, err := fs.Glob(r.FS, riverFolder+"*"+riverEnd)
	for _, name := range all {
		name = folder + strings.TrimSuffix(strings.TrimPrefix(name, riverFolder), riverEnd) + ".sql"
		if fits, err := path.Match(pattern, name); err != nil {
			return nil, err
		} else if fits {
			names = append(names, name)
		}
	}
	return names, err
}

func (r gooseMigrations) Open(name string) (fs.File, error) {
	file, err := r.FS.Open(riverFolder + strings.TrimSuffix(strings.TrimPrefix(name, folder), ".sql") + riverEnd)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	return migration{
		file,
		strings.NewReader(
			"-- +goose Up\n-- +goose StatementBegin\n" + strings.ReplaceAll(string(text), schemaTemplate, "") + "\n-- +goose StatementEnd\n",
		),
	}, nil
}

type migration struct {
	fs.File
	text io.Reader
}

func (m migration) Read(p []byte) (int, error) { return m.text.Read(p) }

// driver is River's driver without LISTEN and NOTIFY. Listening would need a connection of each service, and notifying
// takes a lock on the whole database. Runners are woken instead.
type driver struct{ *riverpgxv5.Driver }

func (driver) SupportsListener() bool     { return false }
func (driver) SupportsListenNotify() bool { return false }

// arguments are the arguments of a job of any kind, as JSON.
type arguments struct {
	kind string
	text json.RawMessage
}

func (a arguments) Kind() string                 { return a.kind }
func (a arguments) MarshalJSON() ([]byte, error) { return a.text, nil }

func (a *arguments) UnmarshalJSON(text []byte) error {
	a.text = append(json.RawMessage(nil), text...)
	return nil
}

// Do returns a job's Do that reads its arguments as an A.
func Do[A any](do func(context.Context, *service.Attempt, A) error) func(context.Context, *service.Attempt) error {
	return func(ctx context.Context, attempt *service.Attempt) error {
		var args A
		if err := json.Unmarshal(attempt.Args, &args); err != nil {
			return GiveUp(fmt.Errorf("read the arguments: %w", err))
		}
		return do(ctx, attempt, args)
	}
}

// GiveUp returns the error of a job that no further attempt can complete. The job has failed.
func GiveUp(err error) error { return river.JobCancel(err) }

// Snooze returns the error of a job that runs again after a delay. The attempt does not count.
func Snooze(delay time.Duration) error { return river.JobSnooze(delay) }

// caller is the caller on whose behalf a job runs.
type caller struct {
	Principal *principal.Principal `json:"principal,omitempty"`
	IP        netip.Addr           `json:"ip,omitzero"`
	RequestID string               `json:"request_id,omitempty"`
}

// callerOf returns the caller without its grants: the service has already checked what it may do.
func callerOf(ctx context.Context) caller {
	call := principal.FromContext(ctx)
	c := caller{IP: call.IP, RequestID: call.RequestID}
	if p := call.Principal; p != nil {
		c.Principal = &principal.Principal{KeyID: p.KeyID, Owner: p.Owner, Name: p.Name}
	}
	return c
}

// metadata is what River stores with a job.
type metadata struct {
	Caller   caller          `json:"caller,omitzero"`
	Progress json.RawMessage `json:"output,omitempty"` // River's name

	Traceparent string `json:"traceparent,omitempty"` // the span that enqueued the job; empty: it was not traced
}

// inserter enqueues jobs in units of work, and has no connection of its own.
var inserter = func() *river.Client[pgx.Tx] {
	client, err := river.NewClient(driver{riverpgxv5.New(nil)}, &river.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	return client
}()

// unfinished are the states in which a unique job replaces another one with the same arguments.
var unfinished = []rivertype.JobState{
	rivertype.JobStateAvailable,
	rivertype.JobStatePending,
	rivertype.JobStateRetryable,
	rivertype.JobStateRunning,
	rivertype.JobStateScheduled,
}

// Enqueue adds a job that runs in an instance of the service after the unit of work has committed. args becomes the JSON
// that the job's Do reads. It must not hold secrets, because operators can see it.
func Enqueue(ctx context.Context, tx *pg.Tx, job *service.Job, args any) error {
	text, err := json.Marshal(args)
	if err != nil {
		return fmt.Errorf("enqueue a %s: %w", job.Kind, err)
	}
	kept, err := json.Marshal(metadata{Caller: callerOf(ctx), Traceparent: tracing.Traceparent(ctx)})
	if err != nil {
		return fmt.Errorf("enqueue a %s: %w", job.Kind, err)
	}
	opts := river.InsertOpts{Queue: job.Kind, MaxAttempts: job.Attempts, Metadata: kept}
	if job.Unique {
		opts.UniqueOpts = river.UniqueOpts{ByArgs: true, ByState: unfinished}
	}
	if _, err := inserter.InsertTx(ctx, transaction{unit: tx}, arguments{job.Kind, text}, &opts); err != nil {
		return fmt.Errorf("enqueue a %s: %w", job.Kind, err)
	}
	tx.Wake(enqueued(job.Kind))
	return nil
}

// enqueued returns the topic that wakes a service's runners for jobs of a kind.
func enqueued(kind string) string { return "jobs " + kind }

// cancelled is the topic that wakes them when a job is told to stop.
const cancelled = "jobs cancelled"

// Finish ends a running job with the unit of work that stores its result. failed is why it is given up; nil: it is done.
// An equal job of a unique kind that is enqueued later is a new one. River itself ends a job only later, and until then
// an equal job would be dropped.
func Finish(ctx context.Context, tx *pg.Tx, a *service.Attempt, failed error) error {
	state, why := rivertype.JobStateCompleted, ""
	if failed != nil {
		state, why = rivertype.JobStateDiscarded, failed.Error()
	}
	_, err := tx.Exec(
		ctx,
		`UPDATE river_job SET state = CASE WHEN metadata ? 'cancel_attempted_at' AND $3 <> '' THEN 'cancelled' ELSE $2::text::river_job_state END, finalized_at = now(),
		errors = CASE WHEN $3 = '' THEN errors ELSE array_append(errors, jsonb_build_object('at', now(), 'attempt', attempt, 'error', $3::text, 'trace', '')) END
		WHERE id = $1 AND state = 'running'`,
		a.Job,
		state,
		why,
	)
	if err != nil {
		return fmt.Errorf("end job %d: %w", a.Job, err)
	}
	return nil
}

// transaction is a unit of work in the form that River needs. River can neither begin nor end it.
type transaction struct {
	pgx.Tx
	unit *pg.Tx
}

var errUnitOfWork = errors.New("a unit of work begins and ends its transaction itself")

func (t transaction) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return t.unit.Exec(ctx, sql, args...)
}

func (t transaction) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return t.unit.Query(ctx, sql, args...)
}

func (t transaction) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return t.unit.QueryRow(ctx, sql, args...)
}

func (transaction) Conn() *pgx.Conn                       { return nil } // pgx asks it how to encode arguments; nil is allowed
func (transaction) Begin(context.Context) (pgx.Tx, error) { return nil, errUnitOfWork }
func (transaction) Commit(context.Context) error          { return errUnitOfWork }
func (transaction) Rollback(context.Context) error        { return errUnitOfWork }
