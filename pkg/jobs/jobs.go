// Package jobs does what requests leave behind: River keeps the jobs in the service's schema.
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
	"github.com/ironplane/ironplane/pkg/service"
)

// Migrations are those of what this package writes besides River.
//
//go:embed migrations/*.sql
var Migrations embed.FS

// River are River's own migrations, for who runs all others.
var River fs.GlobFS = gooseMigrations{(*riverpgxv5.Driver)(nil).GetMigrationFS("main")}

type gooseMigrations struct{ fs.FS }

const (
	riverFolder, riverEnd = "migration/main/", ".up.sql"
	folder                = "migrations/"
	schemaTemplate        = "/* TEMPLATE: schema */" // where the name of the schema would be: it is in the search path
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

// driver has nobody listen to Postgres, which would take a connection of each service, nor notify by it, which holds a lock
// on the whole database: jobs are looked for, by who is woken for them.
type driver struct{ *riverpgxv5.Driver }

func (driver) SupportsListener() bool     { return false }
func (driver) SupportsListenNotify() bool { return false }

// arguments are those of a job of any kind.
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

// Do reads a job's arguments for what does it.
func Do[A any](do func(context.Context, *service.Attempt, A) error) func(context.Context, *service.Attempt) error {
	return func(ctx context.Context, attempt *service.Attempt) error {
		var args A
		if err := json.Unmarshal(attempt.Args, &args); err != nil {
			return GiveUp(fmt.Errorf("read the arguments: %w", err))
		}
		return do(ctx, attempt, args)
	}
}

// GiveUp is the error of a job that no attempt will do better: it is given up.
func GiveUp(err error) error { return river.JobCancel(err) }

// Snooze is the error of a job that is to be done later, and has not failed.
func Snooze(delay time.Duration) error { return river.JobSnooze(delay) }

// caller is who a job is done for.
type caller struct {
	Principal *principal.Principal `json:"principal,omitempty"`
	IP        netip.Addr           `json:"ip,omitzero"`
	RequestID string               `json:"request_id,omitempty"`
}

// callerOf leaves out what he may: a job does what the service has decided.
func callerOf(ctx context.Context) caller {
	call := principal.From(ctx)
	c := caller{IP: call.IP, RequestID: call.RequestID}
	if p := call.Principal; p != nil {
		c.Principal = &principal.Principal{KeyID: p.KeyID, Owner: p.Owner, Name: p.Name}
	}
	return c
}

// metadata is what River keeps with a job.
type metadata struct {
	Caller   caller          `json:"caller,omitzero"`
	Progress json.RawMessage `json:"output,omitempty"` // as River calls it
}

// inserter enqueues jobs. It has no connection of its own.
var inserter = func() *river.Client[pgx.Tx] {
	client, err := river.NewClient(driver{riverpgxv5.New(nil)}, &river.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	return client
}()

// unfinished are the states of a job that stands for others of the same arguments.
var unfinished = []rivertype.JobState{
	rivertype.JobStateAvailable,
	rivertype.JobStatePending,
	rivertype.JobStateRetryable,
	rivertype.JobStateRunning,
	rivertype.JobStateScheduled,
}

// Enqueue has a job done, by an instance of the service, once the unit of work is committed. args is what the job's Do reads, as
// JSON; it holds no secrets, for operators may see it.
func Enqueue(ctx context.Context, tx *pg.Tx, job *service.Job, args any) error {
	text, err := json.Marshal(args)
	if err != nil {
		return fmt.Errorf("enqueue a %s: %w", job.Kind, err)
	}
	kept, err := json.Marshal(metadata{Caller: callerOf(ctx)})
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

// enqueued is what a service's runners are woken with when there is a job of a kind.
func enqueued(kind string) string { return "jobs " + kind }

// cancelled is what they are woken with when a job is told to stop.
const cancelled = "jobs cancelled"

// Finish ends a job that is being done once the unit of work is committed which says what came of it; failed is why it is given up. A
// job like it, of a kind that is unique, that is enqueued after that is another one: until River has noted by itself that a job has ended,
// it would stand for that.
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
		return fmt.Errorf("note that job %d has ended: %w", a.Job, err)
	}
	return nil
}

// transaction is a unit of work as River knows it, which neither begins nor ends it.
type transaction struct {
	pgx.Tx
	unit *pg.Tx
}

var errUnitOfWork = errors.New("the transaction is a unit of work's")

func (t transaction) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return t.unit.Exec(ctx, sql, args...)
}

func (t transaction) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return t.unit.Query(ctx, sql, args...)
}

func (t transaction) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return t.unit.QueryRow(ctx, sql, args...)
}

func (transaction) Conn() *pgx.Conn                       { return nil } // it is asked how to send arguments, and nil will do
func (transaction) Begin(context.Context) (pgx.Tx, error) { return nil, errUnitOfWork }
func (transaction) Commit(context.Context) error          { return errUnitOfWork }
func (transaction) Rollback(context.Context) error        { return errUnitOfWork }
