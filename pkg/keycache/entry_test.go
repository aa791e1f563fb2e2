package keycache

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ironplane/ironplane/pkg/backing"
	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/secret"
)

// onEach runs a test on a Redis and on the stand-in.
func onEach(t *testing.T, test func(t *testing.T, s *Store, r *redis.Client)) {
	t.Parallel()
	for name, options := range map[string]backing.RedisOptions{"Redis": {}, "the stand-in": {Standin: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			started, err := backing.StartRedis(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = started.Stop(context.Background()) })
			r := open(t, started.URL())
			test(t, NewStore(r, slog.New(slog.DiscardHandler)), r)
		})
	}
}

func open(t *testing.T, url string) *redis.Client {
	t.Helper()
	r, err := cache.Open(secret.New(url))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

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
	if _, err := Fill(t.Context(), s, "owner/admin/1", read); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, s *Store, owner Owner, wanted error) (age time.Duration) {
	t.Helper()
	got, age, err := Get[Owner](t.Context(), s, "owner/admin/1")
	if got != owner || !errors.Is(err, wanted) {
		t.Fatalf("the entry is %+v, %v; want %+v, %v", got, err, owner, wanted)
	}
	return age
}

func TestFill(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store, r *redis.Client) {
		want(t, s, no, ErrNone)
		fillWith(t, s, reads(yes, func() { time.Sleep(200 * time.Millisecond) }))
		if age := want(t, s, yes, nil); age < 200*time.Millisecond || age > Fresh {
			t.Errorf("an entry that took 200ms to fill is %v old", age)
		}
		if left := r.PTTL(t.Context(), keySpace+"owner/admin/1").Val(); left > Life || left < Life-time.Minute {
			t.Errorf("it stands for %v", left)
		}
		fillWith(t, s, reads(no))
		want(t, s, no, nil)
		if left := r.PTTL(t.Context(), keySpace+"owner/admin/1").Val(); left > Fresh {
			t.Errorf("that there is nobody stands for %v", left)
		}
	})
}

// What was read before a removal does not land after it, whatever else happens to Redis in between.
func TestFillLoses(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store, r *redis.Client) {
		remove := func() {
			if err := s.Remove(t.Context(), "owner/admin/1", "key/ab"); err != nil {
				t.Error(err)
			}
		}
		flush := func() { r.FlushAll(t.Context()) }
		fillAgain := func() { fillWith(t, s, reads(no)) }
		for name, events := range map[string][]func(){
			"removed":                  {remove},
			"flushed":                  {flush},
			"removed twice":            {remove, remove},
			"removed and flushed":      {remove, flush},
			"flushed and removed":      {flush, remove},
			"filled and removed":       {fillAgain, remove},
			"flushed, filled, flushed": {flush, fillAgain, flush},
		} {
			flush()
			fillWith(t, s, reads(yes, events...))
			if _, _, err := Get[Owner](t.Context(), s, "owner/admin/1"); !errors.Is(err, ErrNone) {
				t.Errorf("%s meanwhile: the fill landed (%v)", name, err)
			}
		}
		for name, events := range map[string][]func(){
			"removed and filled":            {remove, fillAgain},
			"flushed and filled":            {flush, fillAgain},
			"filled by one who began later": {fillAgain},
		} {
			flush()
			fillWith(t, s, reads(yes, append([]func(){func() { time.Sleep(2 * time.Millisecond) }}, events...)...))
			if got, _, err := Get[Owner](t.Context(), s, "owner/admin/1"); err != nil || got != no {
				t.Errorf("%s meanwhile: the entry is %+v %v", name, got, err)
			}
		}
	})
}

// A begin that is held up and sent again arrives twice: the second time perhaps after the removal. Its token is then
// another one, so the fill that it belongs to does not land.
func TestLateDuplicateOfBegin(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store, r *redis.Client) {
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
				t.Error("the duplicate did not arrive")
			}
		}))
		want(t, s, no, ErrNone)
	})
}

// recorder keeps the commands that a client sent.
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

// A command that is held up on its way does not make what it carries any younger.
func TestLateLanding(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store, r *redis.Client) {
		began, err := s.begin(t.Context(), "owner/admin/1")
		if err != nil {
			t.Fatal(err)
		}
		at, _ := strconv.ParseInt(began.at, 10, 64)
		for _, late := range []time.Duration{0, Fresh + time.Second, Life - time.Second} {
			held := ticket{began.token, strconv.FormatInt(at-late.Milliseconds(), 10)}
			r.HDel(t.Context(), keySpace+"owner/admin/1", "at", "body")
			if err := s.land(t.Context(), "owner/admin/1", held, []byte(`{"active": true, "name": "anna"}`), Life); err != nil {
				t.Fatal(err)
			}
			if age := want(t, s, yes, nil); age < late {
				t.Errorf("what landed %v late is %v old", late, age)
			}
		}
		r.HDel(t.Context(), keySpace+"owner/admin/1", "at", "body")
		tooLate := ticket{began.token, strconv.FormatInt(at-Life.Milliseconds()-1, 10)}
		if err := s.land(t.Context(), "owner/admin/1", tooLate, []byte(`{"active": true}`), Life); err != nil {
			t.Fatal(err)
		}
		want(t, s, no, ErrNone)
		// A clock that was set back: what is from the future is not believed, and does not stay.
		ahead := ticket{began.token, strconv.FormatInt(at+time.Hour.Milliseconds(), 10)}
		if err := s.land(t.Context(), "owner/admin/1", ahead, []byte(`{"active": true}`), Life); err != nil {
			t.Fatal(err)
		}
		want(t, s, no, ErrNone)
		fillWith(t, s, reads(yes))
		want(t, s, yes, nil)
	})
}

// Where Redis cannot be told, Remove waits until no entry is fresh.
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
			s := NewStore(open(t, "redis://"+address), slog.New(slog.DiscardHandler))
			brief, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := s.Remove(brief, "key/ab"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Remove gave its word early: %v", err)
			}
			began := time.Now()
			if err := s.Remove(t.Context(), "key/ab"); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took < Fresh || took > Fresh+2*time.Second {
				t.Errorf("Remove took %v", took)
			}
		})
	}
}

// Where Redis is away, a fill answers all the same.
func TestFillWithoutRedis(t *testing.T) {
	t.Parallel()
	s := NewStore(open(t, "redis://127.0.0.1:1"), slog.New(slog.DiscardHandler))
	got, err := Fill(t.Context(), s, "owner/admin/1", reads(yes))
	if err != nil || got != yes || s.Up() {
		t.Fatal(got, err, s.Up())
	}
}
