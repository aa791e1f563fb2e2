package alike

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/ironplane/ironplane/pkg/auth/lockout"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/runtime/tracing"
	"github.com/ironplane/ironplane/services/identity"
)

// spans are those that ended, by their trace.
type spans struct {
	mu    sync.Mutex
	ended map[trace.TraceID][]sdktrace.ReadOnlySpan
	roots map[string]trace.TraceID // by the request's id
}

var traced = &spans{ended: map[trace.TraceID][]sdktrace.ReadOnlySpan{}, roots: map[string]trace.TraceID{}}

func traceAll() {
	tracing.Use(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(traced)))
}

func (*spans) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (*spans) Shutdown(context.Context) error                  { return nil }
func (*spans) ForceFlush(context.Context) error                { return nil }

func (s *spans) OnEnd(span sdktrace.ReadOnlySpan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := span.SpanContext().TraceID()
	s.ended[id] = append(s.ended[id], span)
	if request := attributeOf(span, "ironplane.request_id"); request != "" {
		s.roots[request] = id
	}
}

func attributeOf(span sdktrace.ReadOnlySpan, key attribute.Key) string {
	for _, a := range span.Attributes() {
		if a.Key == key {
			return a.Value.AsString()
		}
	}
	return ""
}

// of are the spans of a request that was answered, in the order in which they began.
func (s *spans) of(t *testing.T, request string) []sdktrace.ReadOnlySpan {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		s.mu.Lock()
		id, ended := s.roots[request]
		found := slices.Clone(s.ended[id])
		s.mu.Unlock()
		if ended {
			slices.SortFunc(found, func(a, b sdktrace.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
			return found
		}
	}
	t.Fatalf("got no trace of the request %s, want one", request)
	return nil
}

// pooled are the spans of a pool of connections.
var pooled = []string{"pool.acquire", "connect"}

// workOf sends a request, and answers what was done for it: statements and hashes, in their order, and the lockouts and jobs that there
// were
// more of afterwards.
func (s *stand) workOf(method, path string, body any, status int) (work []string) {
	s.t.Helper()
	jobs := s.jobs()
	if counters := s.counters(); len(counters) > 0 {
		s.redis.Del(s.t.Context(), counters...)
	}
	s.asked++
	request := fmt.Sprintf("request-%d", s.asked)
	s.nobody.Do(method, path, body, "X-Request-Id", request).Want(status)
	for _, span := range traced.of(s.t, request)[1:] {
		if attributeOf(span, "pgx.prepare_stmt.name") == "" && !slices.Contains(pooled, span.Name()) { // nor what is done once for a connection
			work = append(work, strings.Join(strings.Fields(cmp.Or(attributeOf(span, "db.query.text"), span.Name())), " "))
		}
	}
	return append(work, fmt.Sprintf("%d jobs", s.jobs()-jobs), fmt.Sprintf("%d counters of lockouts", len(s.counters())))
}

// jobs are how many identity was ever given.
func (s *stand) jobs() (n int) {
	s.t.Helper()
	if err := s.db().QueryRow(s.t.Context(), "SELECT coalesce(max(id), 0) FROM river_job").Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// counters are those of guesses.
func (s *stand) counters() []string {
	s.t.Helper()
	names, err := s.redis.Keys(s.t.Context(), "lockout:*").Result()
	if err != nil {
		s.t.Fatal(err)
	}
	return names
}

func (s *stand) db() *pg.DB { return s.product.Databases[identity.Name] }

// tries is how often a request is repeated whose work differs: by chance the product does something of its own meanwhile, or Redis is late.
// What tells of an account differs each time.
const tries = 5

// settled is the work of requests of which two in a row cause the same: some is found out once.
func settled(request func() []string) (work []string) {
	before := request()
	for range tries {
		if work = request(); slices.Equal(work, before) {
			break
		}
		before = work
	}
	return work
}

// repeated is the work of a request that is to cause the same as another one.
func repeated(want []string, request func() []string) (work []string) {
	for range tries {
		if work = request(); slices.Equal(work, want) {
			break
		}
	}
	return work
}

// Whether there is an account, and what it is, changes nothing about what is done for who has not its password: neither at a login nor
// where
// a password is forgotten.
func TestUnknownNamesCauseTheSameWork(t *testing.T) {
	s := newStand(t)
	for _, kind := range []string{"admin", "client"} {
		t.Run(kind, func(t *testing.T) {
			of := s.makeAccounts(t, kind)
			s := s.in(t)
			for what, request := range map[string]func(account) []string{
				"a login":              func(a account) []string { return s.workOf("POST", "/auth/key", a.login(), 401) },
				"a forgotten password": func(a account) []string { return s.workOf("POST", "/auth/password-reset", a.forgotten(), 200) },
				"a wrong link": func(a account) []string {
					s.nobody.Do("POST", "/auth/password-reset", a.forgotten()).Want(200)
					return s.workOf("PATCH", fmt.Sprintf("/auth/password-reset/%d", s.lastReset()), `{"token": "wrong", "password": "seven grey herons at dusk"}`, 422)
				},
			} {
				unknown := settled(func() []string { return request(s.unknown(kind)) })
				if len(unknown) < 3 || what == "a login" && !slices.Contains(unknown, "hash a password") {
					t.Errorf("%s by an unknown name: got %q, want 3 steps or more, with a password hash for a login", what, unknown)
				}
				for _, a := range of {
					if work := repeated(unknown, func() []string { return request(a) }); !slices.Equal(work, unknown) {
						t.Errorf("%s by %s: got\n%s\nwant\n%s", what, a.what, strings.Join(work, "\n"), strings.Join(unknown, "\n"))
					}
				}
			}
		})
	}
}

// Who is locked out cannot tell by what is done for him whether there is the account, nor whether he has its password by now.
func TestLockedOutCausesTheSameWork(t *testing.T) {
	for _, kind := range []string{"admin", "client"} {
		t.Run(kind, func(t *testing.T) {
			s := newStand(t)
			var unknown []string
			for _, a := range append([]account{s.unknown(kind)}, s.makeAccounts(t, kind)...) {
				for range lockout.MaxPerNameAndAddress {
					s.nobody.Do("POST", "/auth/key", account{kind: kind, email: a.email, sent: "wrong again"}.login()).Want(401)
				}
				for _, a.sent = range []string{"wrong", password} {
					login := func() []string { return s.workOf("POST", "/auth/key", a.login(), 429) }
					if unknown == nil {
						unknown = settled(login)
					}
					work := repeated(unknown, login)
					if slices.Contains(work, "hash a password") {
						t.Errorf("%s, locked out: got a password hash, want none", a.what)
					}
					if !slices.Equal(work, unknown) {
						t.Errorf("%s, locked out: got\n%s\nwant\n%s", a.what, strings.Join(work, "\n"), strings.Join(unknown, "\n"))
					}
				}
			}
		})
	}
}

// lastReset is the id of the link that was asked for last, which nobody is told and who counts can guess.
func (s *stand) lastReset() (id int64) {
	s.t.Helper()
	if err := s.db().QueryRow(s.t.Context(), "SELECT max(id) FROM password_reset").Scan(&id); err != nil {
		s.t.Fatal(err)
	}
	return id
}
