package keycache

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/devservers"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
)

// onEach runs a test on a Redis server and on the emulation.
func onEach(t *testing.T, test func(t *testing.T, s *Store, r *cache.Client)) {
	t.Parallel()
	for name, options := range map[string]devservers.RedisOptions{"Redis": {}, "emulation": {Embedded: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			started, err := devservers.StartRedis(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = started.Stop(context.Background()) })
			r := open(t, started.URL())
			test(t, NewStore(r, signer, slog.New(slog.DiscardHandler)), r)
		})
	}
}

func open(t *testing.T, url string) *cache.Client {
	t.Helper()
	r, err := cache.Open(secret.New(url))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// newSigner returns a signer with a new master key.
func newSigner() *seal.Signer {
	key, err := seal.Derive(seal.NewMasterKey(), "test", Purpose)
	if err != nil {
		panic(err)
	}
	s, err := key.Signer(Purpose)
	if err != nil {
		panic(err)
	}
	return s
}

var signer = newSigner()

var yes, no = Owner{Active: true, Name: "anna"}, Owner{}

func reads(o Owner, meanwhile ...func()) func(context.Context) (Owner, error) {
	return func(context.Context) (Owner, error) {
		for _, do := range meanwhile {
			do()
		}
		return o, nil
	}
}

func fillWith(t *testing.T, s *Store, read func(context.Context) (Owner, error)) {
	t.Helper()
	insist(s, func() {
		if _, err := Fill(t.Context(), s, "owner/admin/1", read); err != nil {
			t.Fatal(err)
		}
	})
}

// insist calls do again if Redis did not respond in time, as on a busy machine.
func insist(s *Store, do func()) {
	for do(); !s.IsUp(); do() {
		time.Sleep(50 * time.Millisecond)
	}
}

func get(t *testing.T, s *Store) (owner Owner, age time.Duration, err error) {
	insist(s, func() { owner, age, err = Get[Owner](t.Context(), s, filler, "owner/admin/1") })
	return owner, age, err
}

func want(t *testing.T, s *Store, owner Owner, wanted error) (age time.Duration) {
	t.Helper()
	got, age, err := get(t, s)
	if !reflect.DeepEqual(got, owner) || !errors.Is(err, wanted) {
		t.Fatalf("got the entry %+v, %v, want %+v, %v", got, err, owner, wanted)
	}
	return age
}

func TestFill(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store, r *cache.Client) {
		want(t, s, no, ErrNone)
		began := time.Now()
		fillWith(t, s, reads(yes, func() { time.Sleep(200 * time.Millisecond) }))
		age := want(t, s, yes, nil)
		if elapsed := time.Since(began) + time.Millisecond; age < 200*time.Millisecond || age > elapsed { // Redis counts milliseconds
			t.Errorf("an entry that took 200ms to fill: got the age %v, want 200ms to %v", age, elapsed)
		}
		if left := r.PTTL(t.Context(), keySpace+"owner/admin/1").Val(); left > MaxAge || left < MaxAge-time.Minute {
			t.Errorf("an owner that exists: got a TTL of %v, want %v to %v", left, MaxAge-time.Minute, MaxAge)
		}
		fillWith(t, s, reads(no))
		want(t, s, no, nil)
		if left := r.PTTL(t.Context(), keySpace+"owner/admin/1").Val(); left <= 0 || left > FreshTTL { // without an expiry it is negative
			t.Errorf("an owner that does not exist: got a TTL of %v, want more than 0 and at most %v", left, FreshTTL)
		}
	})
}

// filler is the service that fills the entries.
const filler = "identity"

// An entry from before its service was restored is ignored as soon as Redis has the service's new history, however late
// the entry lands.
func TestAnotherHistory(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store, r *cache.Client) {
		s.Bind(t.Context(), filler, "before")
		fillWith(t, s, reads(yes))
		want(t, s, yes, nil)
		reading, after := NewStore(r, signer, slog.New(slog.DiscardHandler)), NewStore(r, signer, slog.New(slog.DiscardHandler))
		fillWith(t, s, reads(yes, func() { after.Bind(t.Context(), filler, "after") }))
		want(t, reading, no, ErrNone)
		fillWith(t, after, reads(no))
		want(t, reading, no, nil)
		if err := r.HSet(t.Context(), keySpace+"owner/admin/1", "history", "before").Err(); err != nil {
			t.Fatal(err)
		}
		want(t, reading, no, ErrNone)
		for _, forgotten := range []string{historyKey(filler), keySpace + "owner/admin/1"} {
			r.Del(t.Context(), forgotten)
			want(t, reading, no, ErrNone)
			fillWith(t, after, reads(no))
			want(t, reading, no, nil)
		}
		fillWith(t, s, reads(yes)) // by an instance that still has the old history
		if err := r.HSet(t.Context(), historyKey(filler), "history", "after").Err(); err != nil {
			t.Fatal(err)
		}
		want(t, reading, no, ErrNone)
		// The signature covers the history, too.
		if err := r.HSet(t.Context(), keySpace+"owner/admin/1", "history", "after").Err(); err != nil {
			t.Fatal(err)
		}
		want(t, reading, no, ErrNone)
		if reading.unsigned.count.Load() != 1 {
			t.Errorf("got %d unsigned entries, want 1", reading.unsigned.count.Load())
		}
	})
}

// A value that was read before a removal does not land after it, whatever happens to Redis in between.
func TestFillLoses(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store, r *cache.Client) {
		remove := func() {
			insist(s, func() {
				if err := s.Remove(t.Context(), "owner/admin/1", "key/ab"); err != nil {
					t.Error(err)
				}
			})
		}
		flush := func() { r.FlushAll(t.Context()) }
		refill := func() { fillWith(t, s, reads(no)) }
		for name, events := range map[string][]func(){
			"removed":                  {remove},
			"flushed":                  {flush},
			"removed twice":            {remove, remove},
			"removed and flushed":      {remove, flush},
			"flushed and removed":      {flush, remove},
			"filled and removed":       {refill, remove},
			"flushed, filled, flushed": {flush, refill, flush},
		} {
			flush()
			fillWith(t, s, reads(yes, events...))
			if _, _, err := get(t, s); !errors.Is(err, ErrNone) {
				t.Errorf("%s meanwhile: got %v, want %v", name, err, ErrNone)
			}
		}
		for name, events := range map[string][]func(){
			"removed and filled":            {remove, refill},
			"flushed and filled":            {flush, refill},
			"filled by one who began later": {refill},
		} {
			flush()
			fillWith(t, s, reads(yes, append([]func(){func() { time.Sleep(2 * time.Millisecond) }}, events...)...))
			if got, _, err := get(t, s); err != nil || !reflect.DeepEqual(got, no) {
				t.Errorf("%s meanwhile: got the entry %+v, %v, want %+v", name, got, err, no)
			}
		}
	})
}

// A begin that is delayed and sent again arrives twice, perhaps the second time after a removal. The second token differs from
// the first one, so the fill of the first one does not land.
func TestLateDuplicateOfBegin(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store, r *cache.Client) {
		sent := &recorder{}
		r.AddHook(sent)
		fillWith(t, s, reads(yes, func() {
			if err := s.Remove(t.Context(), "owner/admin/1"); err != nil {
				t.Error(err)
			}
			if err := r.Do(t.Context(), sent.last("evalsha", "eval")...).Err(); err != nil {
				t.Error(err)
			}
			if r.Exists(t.Context(), keySpace+"owner/admin/1").Val() == 0 {
				t.Error("got no entry after the second begin, want one")
			}
		}))
		want(t, s, no, ErrNone)
	})
}

// recorder keeps the commands that a client sends.
type recorder struct {
	mu   sync.Mutex
	sent [][]any
}

func (*recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (c *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.mu.Lock()
		c.sent = append(c.sent, cmd.Args())
		c.mu.Unlock()
		return next(ctx, cmd)
	}
}

// last is the last command of these names.
func (c *recorder) last(names ...string) []any {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, args := range slices.Backward(c.sent) {
		if name, _ := args[0].(string); slices.Contains(names, name) {
			return args
		}
	}
	return nil
}

// A delayed command does not make its entry younger.
func TestLateLanding(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store, r *cache.Client) {
		began, err := s.begin(t.Context(), "owner/admin/1")
		if err != nil {
			t.Fatal(err)
		}
		for _, late := range []time.Duration{0, FreshTTL + time.Second, MaxAge - time.Second} {
			held := ticket{began.token, began.at - late.Milliseconds()}
			r.HDel(t.Context(), keySpace+"owner/admin/1", "at", "body")
			if err := s.land(t.Context(), "owner/admin/1", held, []byte(`{"active": true, "name": "anna"}`), MaxAge); err != nil {
				t.Fatal(err)
			}
			if age := want(t, s, yes, nil); age < late {
				t.Errorf("landed %v late: got the age %v, want at least %v", late, age, late)
			}
		}
		r.HDel(t.Context(), keySpace+"owner/admin/1", "at", "body")
		tooLate := ticket{began.token, began.at - MaxAge.Milliseconds() - 1}
		if err := s.land(t.Context(), "owner/admin/1", tooLate, []byte(`{"active": true}`), MaxAge); err != nil {
			t.Fatal(err)
		}
		want(t, s, no, ErrNone)
		// After a clock was set back, an entry from the future is not used, and is removed.
		ahead := ticket{began.token, began.at + time.Hour.Milliseconds()}
		if err := s.land(t.Context(), "owner/admin/1", ahead, []byte(`{"active": true}`), MaxAge); err != nil {
			t.Fatal(err)
		}
		want(t, s, no, ErrNone)
		fillWith(t, s, reads(yes))
		want(t, s, yes, nil)
	})
}

// If Redis is unavailable, Remove waits until no entry is fresh.
func TestRemoveWaits(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	for name, address := range map[string]string{"cut": "127.0.0.1:1", "silent": silent.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := NewStore(open(t, "redis://"+address), signer, slog.New(slog.DiscardHandler))
			brief, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := s.Remove(brief, "key/ab"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Remove for a second: got %v, want %v", err, context.DeadlineExceeded)
			}
			began := time.Now()
			if err := s.Remove(t.Context(), "key/ab"); err != nil {
				t.Fatal(err)
			}
			if elapsed := time.Since(began); elapsed < FreshTTL {
				t.Errorf("got an end of Remove after %v, want at least %v", elapsed, FreshTTL)
			}
		})
	}
}

// A fill returns its value also if Redis is unavailable.
func TestFillWithoutRedis(t *testing.T) {
	t.Parallel()
	s := NewStore(open(t, "redis://127.0.0.1:1"), signer, slog.New(slog.DiscardHandler))
	got, err := Fill(t.Context(), s, "owner/admin/1", reads(yes))
	if err != nil || !reflect.DeepEqual(got, yes) || s.IsUp() {
		t.Fatalf("got %+v, %v and Redis up %t, want %+v, no error and false", got, err, s.IsUp(), yes)
	}
}

// An entry without the signature of its service counts as missing, and the next fill replaces it.
func TestForgedEntries(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store, r *cache.Client) {
		const entry = keySpace + "owner/admin/1"
		set := func(fields ...any) func() {
			return func() {
				if err := r.HSet(t.Context(), entry, fields...).Err(); err != nil {
					t.Fatal(err)
				}
			}
		}
		copied := func(from, to string) {
			fields := r.HGetAll(t.Context(), keySpace+from).Val()
			r.Del(t.Context(), keySpace+to)
			for name, value := range fields {
				r.HSet(t.Context(), keySpace+to, name, value)
			}
		}
		other := NewStore(r, newSigner(), slog.New(slog.DiscardHandler))
		for name, forge := range map[string]func(){
			"raised grants":           set("body", `{"active":true,"name":"anna","grants":["users.admins write"]}`),
			"another name":            set("body", `{"active":true,"name":"bert"}`),
			"a younger age":           set("at", time.Now().Add(time.Second).UnixMilli()),
			"an age that is none":     set("at", "soon"),
			"no signature":            func() { r.HDel(t.Context(), entry, "mac") },
			"another signature":       set("mac", strings.Repeat("x", 36)),
			"half a signature":        func() { set("mac", r.HGet(t.Context(), entry, "mac").Val()[:20])() },
			"nothing but a signature": func() { r.Del(t.Context(), entry); set("body", "{}", "mac", "")() },
			"another entry": func() {
				if _, err := Fill(t.Context(), s, "owner/admin/2", reads(Owner{Active: true, Name: "anna"})); err != nil {
					t.Fatal(err)
				}
				copied("owner/admin/2", "owner/admin/1")
			},
			"one signed with another master key": func() { r.Del(t.Context(), entry); fillWith(t, other, reads(yes)) },
		} {
			fillWith(t, s, reads(yes))
			want(t, s, yes, nil)
			before := s.unsigned.count.Load()
			forge()
			if value, _, err := Get[Owner](t.Context(), s, filler, "owner/admin/1"); !errors.Is(err, ErrNone) {
				t.Errorf("%s: got the entry %+v, %v, want %v", name, value, err, ErrNone)
			}
			if after := s.unsigned.count.Load(); after != before+1 || s.skewed.count.Load() != 0 {
				t.Errorf("%s: got %d unsigned entries and %d of another time, want 1 and 0", name, after-before, s.skewed.count.Load())
			}
		}
		if !s.IsUp() {
			t.Error("got Redis down after a forged entry, want it up")
		}
	})
}

// A removed entry that somebody writes back to Redis keeps its age.
func TestReplayedEntry(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store, r *cache.Client) {
		fillWith(t, s, reads(yes))
		fields := r.HGetAll(t.Context(), keySpace+"owner/admin/1").Val()
		if err := s.Remove(t.Context(), "owner/admin/1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond)
		r.HSet(t.Context(), keySpace+"owner/admin/1", fields)
		if age := want(t, s, yes, nil); age < 300*time.Millisecond {
			t.Errorf("got the age %v, want at least 300ms", age)
		}
	})
}

// If the clock of Redis differs too much from ours, entries are neither used nor signed. So a fake Redis can do little.
func TestOtherTime(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	s := NewStore(open(t, "redis://"+server.Addr()), signer, slog.New(slog.DiscardHandler))
	fillWith(t, s, reads(yes))
	want(t, s, yes, nil)
	for _, by := range []time.Duration{-2 * time.Minute, 2 * time.Minute} {
		server.SetTime(time.Now().Add(by))
		want(t, s, no, ErrNone)
		before := server.HGet(keySpace+"owner/admin/1", "mac")
		fillWith(t, s, reads(Owner{Active: true, Name: "bert"}))
		if server.HGet(keySpace+"owner/admin/1", "mac") != before {
			t.Errorf("a clock that is off by %v: got a new signature, want the old one", by)
		}
	}
	if s.unsigned.count.Load() != 0 || s.skewed.count.Load() == 0 {
		t.Errorf("got %d unsigned entries and %d of another time, want 0 and some", s.unsigned.count.Load(), s.skewed.count.Load())
	}
	server.SetTime(time.Now())
	want(t, s, yes, nil)
}

// A forgery is logged once, not for each look-up.
func TestForgeryIsLoggedOnce(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	var logged bytes.Buffer
	s := NewStore(open(t, "redis://"+server.Addr()), signer, slog.New(slog.NewTextHandler(&logged, nil)))
	server.HSet(keySpace+"key/ab", "at", "1", "body", `{"id":1}`, "mac", "x")
	for range 20 {
		if _, _, err := Get[Key](t.Context(), s, filler, "key/ab"); !errors.Is(err, ErrNone) {
			t.Fatalf("got %v, want %v", err, ErrNone)
		}
	}
	if n := strings.Count(logged.String(), "\n"); n != 1 || strings.Contains(logged.String(), "ab") {
		t.Errorf("got the log %q, want one line without the key", logged.String())
	}
}

// BenchmarkTrust measures what the signature adds to a look-up in Redis.
func BenchmarkTrust(b *testing.B) {
	s := &Store{signer: signer}
	body := []byte(`{"id":1,"owner":{"type":"admin","id":1}}`)
	signature := s.signer.Sign(Signed("owner/admin/1", "", 1, body))
	for b.Loop() {
		if !s.isSigned("owner/admin/1", "", 1, body, signature) {
			b.Fatal("got a signature that is not trusted, want it trusted")
		}
	}
}
