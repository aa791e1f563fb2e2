package jobs_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/jobs"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/peers"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/wake"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// fixture is a service with jobs.
type fixture struct {
	testing.TB
	*pool.Pool
	wakes *wake.Bus
}

func newFixture(t testing.TB) *fixture {
	opened, err := pool.Open(t.Context(), testkit.Databases(t, testkit.Service{Name: "jobs"})["jobs"].Reveal(), 10, pool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.Close)
	return &fixture{t, opened, testkit.Wakes("jobs", opened.DB)}
}

// work starts a process that does jobs of these kinds until stop is called or the test ends.
func (s *fixture) work(kinds ...service.Job) (stop func()) {
	return s.workLogging(slog.DiscardHandler, kinds...)
}

// workLogging is work with a log.
func (s *fixture) workLogging(log slog.Handler, kinds ...service.Job) (stop func()) {
	ctx, end := context.WithCancel(s.Context())
	var working sync.WaitGroup
	working.Go(func() {
		if err := jobs.NewRunner("jobs", s.DB, s.Connections(), s.wakes, kinds, slog.New(log)).Work(ctx); err != nil {
			s.Error(err)
		}
	})
	stop = sync.OnceFunc(func() {
		end()
		working.Wait()
	})
	s.Cleanup(stop)
	return stop
}

var errRolledBack = errors.New("rolled back")

// enqueue enqueues a job in a unit of work. If failing is set, the unit of work fails with it.
func (s *fixture) enqueue(ctx context.Context, job service.Job, args any, failing error) {
	s.Helper()
	err := s.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("a test")
		if err := jobs.Enqueue(ctx, tx, &job, args); err != nil {
			return err
		}
		return failing
	})
	if !errors.Is(err, failing) {
		s.Fatalf("got %v, want %v", err, failing)
	}
}

func (s *fixture) execute(sql string, args ...any) {
	s.Helper()
	testkit.Execute(s, s.DB, sql, args...)
}

func (s *fixture) count(sql string, args ...any) (n int) {
	s.Helper()
	if err := s.QueryRow(s.Context(), "SELECT count(*) FROM "+sql, args...).Scan(&n); err != nil {
		s.Fatal(err)
	}
	return n
}

func (s *fixture) eventually(condition string, holds func() bool) {
	s.Helper()
	testkit.Eventually(s, condition, holds, func() (jobs string) {
		_ = s.QueryRow(s.Context(), "SELECT coalesce(jsonb_pretty(jsonb_agg(j)), '') FROM river_job j").Scan(&jobs)
		return jobs
	})
}

// becomes waits until the job has a state of River.
func (s *fixture) becomes(state string) {
	s.Helper()
	s.eventually("the job is "+state, func() bool { return s.count("river_job WHERE state::text = $1", state) == 1 })
}

type greeting struct {
	Name string `json:"name"`
}

// A job is done only if its unit of work was committed. Its changes are recorded with the caller of that unit of work.
func TestJobsFollowTheirUnitOfWork(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	greet := service.Job{Kind: "greet", Do: jobs.Do(func(ctx context.Context, _ *service.Attempt, args greeting) error {
		return s.InTx(ctx, func(tx *pg.Tx) error {
			tx.Record(pg.Record{Kind: "greeting", Action: pg.Created, Targets: []pg.Target{{Type: "greeting", ID: 1, Name: args.Name}}})
			return nil
		})
	})}
	ctx := principal.NewContext(
		t.Context(),
		&principal.Call{Peer: principal.Gateway, RequestID: "request-1", IP: netip.MustParseAddr("192.0.2.1"),
			Principal: &principal.Principal{KeyID: 7, Owner: principal.Owner{Type: principal.Admin, ID: 3}, Name: "ada", Grants: principal.All}},
	)
	s.enqueue(ctx, greet, greeting{"kept"}, nil)
	s.enqueue(ctx, greet, greeting{"rolled back"}, errRolledBack)
	s.enqueue(t.Context(), greet, greeting{"without a caller"}, nil)
	if n := s.count("river_job WHERE metadata::text LIKE '%grants%' AND metadata -> 'caller' -> 'principal' -> 'grants' <> '[]'"); n != 0 {
		t.Errorf("got %d jobs with their caller's grants, want none", n)
	}
	s.work(greet)
	s.eventually("both jobs have recorded a change", func() bool { return s.count("change") == 2 })
	if n := s.count(
		"change WHERE actor_url = '/admin/3' AND actor_name = 'ada' AND actor_key = 7 AND ip = '192.0.2.1' " +
			"AND request_id = 'request-1' AND targets::text LIKE '%kept%'",
	); n != 1 {
		t.Errorf("got %d records with the caller, want 1", n)
	}
	if n := s.count("change WHERE actor_url IS NULL AND targets::text LIKE '%without a caller%'"); n != 1 {
		t.Errorf("got %d records without a caller, want 1", n)
	}
	s.eventually("both jobs are completed", func() bool { return s.count("river_job WHERE state = 'completed'") == 2 })
}

// A failed job is tried again, with the progress of the earlier attempt. It is given up after its last attempt.
func TestFailedJobs(t *testing.T) {
	t.Parallel()
	atOnce := func(int) time.Duration { return 0 }
	t.Run("retried", func(t *testing.T) {
		t.Parallel()
		s := newFixture(t)
		var progress sync.Map
		job := service.Job{Kind: "fail-twice", Backoff: atOnce, Do: func(ctx context.Context, a *service.Attempt) error {
			progress.Store(a.Number, string(a.Earlier))
			if err := a.Progress(ctx, map[string]int{"steps": a.Number}); err != nil {
				return err
			}
			switch a.Number {
			case 1:
				return errors.New("not yet")
			case 2:
				panic("not yet")
			}
			return nil
		}}
		s.enqueue(t.Context(), job, struct{}{}, nil)
		s.work(job)
		s.becomes("completed")
		for attempt, earlier := range map[int]string{1: "", 2: `{"steps": 1}`, 3: `{"steps": 2}`} {
			if got, _ := progress.Load(attempt); got != earlier {
				t.Errorf("attempt %d: got the progress %v, want %q", attempt, got, earlier)
			}
		}
	})
	for name, job := range map[string]struct {
		service.Job
		state    string
		attempts int
	}{
		"no attempts left": {
			service.Job{Attempts: 2, Do: func(context.Context, *service.Attempt) error { return errors.New("broken") }}, "discarded", 2,
		},
		"given up": {
			service.Job{Do: func(context.Context, *service.Attempt) error { return jobs.GiveUp(errors.New("broken")) }}, "cancelled", 1,
		},
		"invalid arguments": {service.Job{Do: jobs.Do(func(context.Context, *service.Attempt, []int) error { return nil })}, "cancelled", 1},
		"timeout": {service.Job{Attempts: 1, Timeout: time.Millisecond, Do: func(ctx context.Context, _ *service.Attempt) error {
			<-ctx.Done()
			return ctx.Err()
		}}, "discarded", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFixture(t)
			job.Kind, job.Backoff = "fail", atOnce
			s.enqueue(t.Context(), job.Job, greeting{"x"}, nil)
			s.work(job.Job)
			s.becomes(job.state)
			if n := s.count("river_job WHERE attempt = $1 AND cardinality(errors) = $1", job.attempts); n != 1 {
				t.Errorf("got %d jobs with %d attempts and as many errors, want 1", n, job.attempts)
			}
		})
	}
}

// A unique job is not enqueued while one with the same arguments has not ended.
// lockedBuffer is a buffer that several goroutines may use.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

// The log says that an outage of jobs is over once they work again, and not as long as one of them waits for its next attempt.
func TestOutageOfJobsEnds(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	mails := service.Job{Kind: "mail", Backoff: func(int) time.Duration { return time.Hour }, Do: jobs.Do(
		func(_ context.Context, a *service.Attempt, args greeting) error {
			if args.Name == "refused" && a.Number == 1 {
				return errors.New("the mail server is away")
			}
			return nil
		})}
	var text lockedBuffer
	s.workLogging(slog.NewTextHandler(&text, nil), mails)
	s.enqueue(t.Context(), mails, greeting{Name: "refused"}, nil)
	s.becomes("retryable")
	s.enqueue(t.Context(), mails, greeting{Name: "sent"}, nil)
	s.becomes("completed")
	for range 2 { // the runner looks at each sign of life
		before := s.count("job_runner WHERE seen > now() - interval '1 day'")
		s.execute("UPDATE job_runner SET seen = now() - interval '2 days'")
		s.eventually("the runner is alive", func() bool {
			return before > 0 && s.count("job_runner WHERE seen > now() - interval '1 day'") == before
		})
	}
	if strings.Contains(text.String(), "outage is over") {
		t.Errorf("got the log\n%s\nwant no end of the outage while a job waits for its next attempt", text.String())
	}
	s.execute("UPDATE river_job SET scheduled_at = now() WHERE state = 'retryable'")
	s.eventually("the log has the end of the outage", func() bool {
		return strings.Contains(text.String(), `msg="outage is over" recovered="jobs of the kind mail"`)
	})
}

func TestUniqueJobs(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	var done atomic.Int64
	job := service.Job{Kind: "once", Unique: true, Do: func(context.Context, *service.Attempt) error { done.Add(1); return nil }}
	for _, name := range []string{"ada", "ada", "bob"} {
		s.enqueue(t.Context(), job, greeting{name}, nil)
	}
	stop := s.work(job)
	s.eventually("both jobs are completed", func() bool { return s.count("river_job WHERE state = 'completed'") == 2 })
	s.enqueue(t.Context(), job, greeting{"ada"}, nil)
	s.eventually("a later job is completed, too", func() bool { return s.count("river_job WHERE state = 'completed'") == 3 })
	stop()
	if n := done.Load(); n != 3 {
		t.Errorf("got %d jobs done, want 3", n)
	}
}

// A process that is told to stop finishes its short jobs. Another process starts its long jobs again, and that counts as no
// attempt.
func TestStop(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	started, finish := make(chan string, 2), make(chan struct{})
	job := service.Job{Kind: "take-long", Attempts: 1, Do: jobs.Do(func(ctx context.Context, _ *service.Attempt, a greeting) error {
		started <- a.Name
		if a.Name == "short" {
			<-finish
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	})}
	s.enqueue(t.Context(), job, greeting{"short"}, nil)
	s.enqueue(t.Context(), job, greeting{"long"}, nil)
	stop := s.work(job)
	<-started
	<-started
	go func() {
		time.Sleep(100 * time.Millisecond)
		close(finish)
	}()
	stop()
	if n := s.count("river_job WHERE state = 'completed' AND args ->> 'name' = 'short'"); n != 1 {
		t.Errorf("got %d short jobs completed, want 1", n)
	}
	if n := s.count("river_job WHERE state = 'available' AND attempt = 0 AND args ->> 'name' = 'long'"); n != 1 {
		t.Errorf("got %d long jobs available without an attempt, want 1", n)
	}
}

// A cancelled job is told to stop in the process that runs it, and is not tried again.
func TestCancelRunningJob(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	started := make(chan int64, 1)
	job := service.Job{Kind: "never-ends", Do: func(ctx context.Context, a *service.Attempt) error {
		started <- a.Job
		<-ctx.Done()
		return ctx.Err()
	}}
	s.enqueue(t.Context(), job, struct{}{}, nil)
	s.work(job)
	id := <-started
	handler := rest.NewHandler("jobs", s.DB, slog.New(slog.DiscardHandler), jobs.Routes("jobs", s.DB, "keeper"))
	reply, err := jobs.Cancel(t.Context(), peers.New("keeper", map[string]http.Handler{"jobs": handler}), "jobs", id)
	if err != nil || reply.Job == nil || reply.Job.State != "running" || !reply.Job.Cancelling {
		t.Fatalf("got %+v, %v, want a running job that is being cancelled", reply.Job, err)
	}
	s.becomes("cancelled")
	if _, err := jobs.Get(t.Context(), peers.New("network", map[string]http.Handler{"jobs": handler}), "jobs", id); err == nil {
		t.Error("get a job as another service: got no error, want one")
	}
}

// If a process is killed, another process starts its jobs again, except those without an attempt left.
func TestJobsOfKilledProcesses(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	var done sync.Map
	job := service.Job{Kind: "survive", Attempts: 3, Do: jobs.Do(func(_ context.Context, a *service.Attempt, args greeting) error {
		done.Store(args.Name, a.Number)
		return nil
	})}
	for name, running := range map[string]struct {
		attempt int
		runner  string
	}{"killed": {1, "dead"}, "last attempt": {3, "dead"}, "runs elsewhere": {1, "elsewhere"}, "just started": {1, "dead"}} {
		s.enqueue(t.Context(), job, greeting{name}, nil)
		s.execute(
			"UPDATE river_job SET state = 'running', attempt = $2, attempted_at = now() - CASE WHEN $1 = 'just started' THEN interval '-1 "+
				"hour' ELSE interval '1 hour' END, attempted_by = ARRAY['earlier', $3] WHERE args ->> 'name' = $1",
			name,
			running.attempt,
			running.runner,
		)
	}
	s.execute(
		"INSERT INTO job_runner (id, since, seen) VALUES ('dead', now() - interval '1 hour', now() - interval '1 minute'), ('elsewhere', " +
			"now() - interval '1 hour', now() + interval '1 hour')",
	)
	s.work(job)
	s.eventually("the runner has registered", func() bool { return s.count("job_runner") == 3 })
	if _, exists := done.Load("killed"); exists {
		t.Error("got the killed job done at once, want it to wait until other runners have reported")
	}
	s.execute("UPDATE job_runner SET since = now() - interval '1 minute'")
	s.eventually("the killed job is done", func() bool { _, exists := done.Load("killed"); return exists })
	if n, _ := done.Load("killed"); n != 2 {
		t.Errorf("the killed job: got attempt %v, want 2", n)
	}
	s.eventually("the job without an attempt left is given up", func() bool {
		return s.count(
			"river_job WHERE state = 'discarded' AND args ->> 'name' = 'last attempt' "+
				"AND errors[1] ->> 'error' = 'the process that ran the job has ended'",
		) == 1
	})
	if n := s.count("river_job WHERE state = 'running' AND args ->> 'name' IN ('runs elsewhere', 'just started')"); n != 2 {
		t.Errorf("got %d jobs that still run elsewhere, want 2", n)
	}
}

// River's migrations of the first release stay as they are. A service does not start if a migration that it has applied was
// edited.
func TestRiversMigrations(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(jobs.River, "migrations/*.sql")
	if err != nil || len(names) < 8 {
		t.Fatalf("got the migrations %v, %v, want 8 or more", names, err)
	}
	sum := sha256.New()
	for _, name := range names[:8] {
		text, err := fs.ReadFile(jobs.River, name)
		if err != nil {
			t.Fatal(err)
		}
		sum.Write(text)
	}
	const want = "c62049097c0d32b22a2cbba6a102afebdc250697fe350966c0461aec875cde48"
	if got := fmt.Sprintf("%x", sum.Sum(nil)); got != want {
		t.Errorf("the sum of the first release's migrations: got %s, want %s", got, want)
	}
}

func TestEnqueueInvalidArguments(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	err := s.InTx(t.Context(), func(tx *pg.Tx) error {
		return jobs.Enqueue(t.Context(), tx, &service.Job{Kind: "x"}, func() {})
	})
	if _, refused := errors.AsType[*json.UnsupportedTypeError](err); !refused {
		t.Errorf("got %v, want an unsupported type", err)
	}
}

// No transaction that enqueues, does or retries a job sends a NOTIFY, because that would hold a lock on the whole database
// during the commit.
func TestNoNotify(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	conn, err := s.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, topic := range []string{"river_insert", "river_control"} { // River's leader sends one when it ends, outside of a transaction
		for _, schema := range []string{"", "jobs."} {
			if _, err := conn.Exec(t.Context(), "LISTEN "+pgx.Identifier{schema + topic}.Sanitize()); err != nil {
				t.Fatal(err)
			}
		}
	}
	attempts := make(chan int, 10)
	job := service.Job{Kind: "try-twice", Backoff: func(int) time.Duration { return time.Millisecond },
		Do: func(_ context.Context, a *service.Attempt) error {
			attempts <- a.Number
			if a.Number == 1 {
				return errRolledBack
			}
			return nil
		}}
	stop := s.work(job)
	s.enqueue(t.Context(), job, greeting{"Ann"}, nil)
	<-attempts
	<-attempts
	testkit.Eventually(t, "the job is completed", func() bool { return s.count("river_job WHERE state = 'completed'") == 1 })
	stop()
	if _, err := conn.Exec(t.Context(), "NOTIFY river_insert, 'the end'"); err != nil {
		t.Fatal(err)
	}
	got, err := conn.WaitForNotification(t.Context())
	if err != nil || got.Payload != "the end" {
		t.Errorf("got notification %+v, %v, want none before the end", got, err)
	}
}
