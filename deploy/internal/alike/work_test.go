package alike

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/ironplane/ironplane/pkg/auth/lockout"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/runtime/tracing"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity"
)

// spans collects the ended spans of each trace.
type spans struct {
	mu    sync.Mutex
	ended map[trace.TraceID][]sdktrace.ReadOnlySpan
	roots map[string]trace.TraceID // by request id
	later map[trace.SpanID]bool    // the spans of what a request left behind, which no caller waits for
}

var traced = &spans{
	ended: map[trace.TraceID][]sdktrace.ReadOnlySpan{}, roots: map[string]trace.TraceID{}, later: map[trace.SpanID]bool{},
}

// traceAll has every span of this process collected in traced.
func traceAll() {
	tracing.Use(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(traced)))
}

func (*spans) Shutdown(context.Context) error   { return nil }
func (*spans) ForceFlush(context.Context) error { return nil }

func (s *spans) OnStart(_ context.Context, span sdktrace.ReadWriteSpan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if span.SpanKind() == trace.SpanKindConsumer || s.later[span.Parent().SpanID()] {
		s.later[span.SpanContext().SpanID()] = true
	}
}

func (s *spans) OnEnd(span sdktrace.ReadOnlySpan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.later[span.SpanContext().SpanID()] {
		return
	}
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

// ofRequest waits until a request has ended, and returns its spans in order of their start.
func (s *spans) ofRequest(t *testing.T, request string) (found []sdktrace.ReadOnlySpan) {
	t.Helper()
	testkit.Eventually(t, "the trace of "+request+" has ended", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		id, ended := s.roots[request]
		found = slices.Clone(s.ended[id])
		return ended
	})
	slices.SortFunc(found, func(a, b sdktrace.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	return found
}

// poolSpans are the names of the connection pool's spans. They depend on chance, so they are not compared.
var poolSpans = []string{"pool.acquire", "connect"}

// workOf sends a request and returns what the product did for it. These are the statements and hashes in their
// order, and the numbers of new jobs and lockout counters.
func (s *stand) workOf(method, path string, body any, status int) (work []string) {
	s.t.Helper()
	jobs := s.jobs()
	if counters := s.counters(); len(counters) > 0 {
		s.redis.Del(s.t.Context(), counters...)
	}
	s.requestCount++
	request := fmt.Sprintf("request-%d", s.requestCount)
	s.anonymous.Do(method, path, body, "X-Request-Id", request).Want(status)
	for _, span := range traced.ofRequest(s.t, request)[1:] {
		if attributeOf(span, "pgx.prepare_stmt.name") == "" &&
			!slices.Contains(poolSpans, span.Name()) { // statements are prepared once for each connection
			work = append(work, strings.Join(strings.Fields(cmp.Or(attributeOf(span, "db.query.text"), span.Name())), " "))
		}
	}
	return append(work, fmt.Sprintf("%d jobs", s.jobs()-jobs), fmt.Sprintf("%d counters of lockouts", len(s.counters())))
}

// jobs returns the number of jobs that identity has created so far.
func (s *stand) jobs() (n int) {
	s.t.Helper()
	if err := s.db().QueryRow(s.t.Context(), "SELECT coalesce(max(id), 0) FROM river_job").Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// counters returns the Redis keys of the lockout counters.
func (s *stand) counters() []string {
	s.t.Helper()
	names, err := s.redis.Keys(s.t.Context(), "lockout:*").Result()
	if err != nil {
		s.t.Fatal(err)
	}
	return names
}

func (s *stand) db() *pg.DB { return s.product.Databases[identity.Name] }

// maxTries bounds how often a request is sent again because its work differs. Background work or a slow Redis
// changes the work by chance, but a leak about accounts would differ each time.
const maxTries = 5

// settledWork repeats a request until two in a row cause the same work, and returns that work. The first requests
// also fill caches.
func settledWork(request func() []string) (work []string) {
	before := request()
	for range maxTries {
		if work = request(); slices.Equal(work, before) {
			break
		}
		before = work
	}
	return work
}

// repeatedWork repeats a request until it causes the work in want, and returns the last work.
func repeatedWork(want []string, request func() []string) (work []string) {
	for range maxTries {
		if work = request(); slices.Equal(work, want) {
			break
		}
	}
	return work
}

// TestUnknownNamesCauseTheSameWork tests that the product does the same work whether an account exists or not, for
// a refused sign-in, a password reset, and an invalid reset link.
func TestUnknownNamesCauseTheSameWork(t *testing.T) {
	s := newStand(t)
	for _, kind := range []string{"admin", "client"} {
		t.Run(kind, func(t *testing.T) {
			accounts := s.makeAccounts(t, kind)
			s := s.withT(t)
			for label, request := range map[string]func(account) []string{
				"a sign-in":        func(a account) []string { return s.workOf("POST", "/auth/key", a.login(), 401) },
				"a password reset": func(a account) []string { return s.workOf("POST", "/auth/password-reset", a.passwordReset(), 200) },
				"an invalid reset link": func(a account) []string {
					s.anonymous.Do("POST", "/auth/password-reset", a.passwordReset()).Want(200)
					return s.workOf("PATCH", fmt.Sprintf("/auth/password-reset/%d", s.lastReset()), `{"token": "wrong", "password": "seven grey herons at dusk"}`, 422)
				},
			} {
				unknown := settledWork(func() []string { return request(s.unknown(kind)) })
				if len(unknown) < 3 || label == "a sign-in" && !slices.Contains(unknown, "hash a password") {
					t.Errorf("%s by an unknown name: got %q, want 3 steps or more, with a password hash for a sign-in", label, unknown)
				}
				for _, a := range accounts {
					if work := repeatedWork(unknown, func() []string { return request(a) }); !slices.Equal(work, unknown) {
						t.Errorf("%s by %s: got\n%s\nwant\n%s", label, a.label, strings.Join(work, "\n"), strings.Join(unknown, "\n"))
					}
				}
			}
		})
	}
}

// TestLockedOutCausesTheSameWork tests that a locked-out caller cannot tell whether the account exists, nor whether
// its latest password is right.
func TestLockedOutCausesTheSameWork(t *testing.T) {
	for _, kind := range []string{"admin", "client"} {
		t.Run(kind, func(t *testing.T) {
			s := newStand(t)
			var unknown []string
			for _, a := range append([]account{s.unknown(kind)}, s.makeAccounts(t, kind)...) {
				for range lockout.MaxPerNameAndAddress {
					s.anonymous.Do("POST", "/auth/key", account{kind: kind, email: a.email, guess: "wrong again"}.login()).Want(401)
				}
				for _, a.guess = range []string{"wrong", password} {
					login := func() []string { return s.workOf("POST", "/auth/key", a.login(), 429) }
					if unknown == nil {
						unknown = settledWork(login)
					}
					work := repeatedWork(unknown, login)
					if slices.Contains(work, "hash a password") {
						t.Errorf("%s, locked out: got a password hash, want none", a.label)
					}
					if !slices.Equal(work, unknown) {
						t.Errorf("%s, locked out: got\n%s\nwant\n%s", a.label, strings.Join(work, "\n"), strings.Join(unknown, "\n"))
					}
				}
			}
		})
	}
}

// lastReset returns the id of the newest reset link. An attacker can guess it, because ids are consecutive.
func (s *stand) lastReset() (id int64) {
	s.t.Helper()
	if err := s.db().QueryRow(s.t.Context(), "SELECT max(id) FROM password_reset").Scan(&id); err != nil {
		s.t.Fatal(err)
	}
	return id
}
