package lockout

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/testkit"
)

func away(t *testing.T) *cache.Client {
	t.Helper()
	client, err := cache.Open(secret.New("redis://127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// missed records that Redis did not respond in time, as on a busy machine.
type missed struct {
	slog.Handler
	atomic.Bool
}

func (m *missed) Enabled(context.Context, slog.Level) bool  { return true }
func (m *missed) Handle(context.Context, slog.Record) error { m.Store(true); return nil }

var network, other = netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8:0:1::1")

// guesses returns how many of n wrong guesses are compared.
func guesses(t *testing.T, l *Lockouts, n int, of func(i int) Guess) int {
	t.Helper()
	var compared atomic.Int32
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			guess, duration := of(i), Duration
			if guess.KnownDevice {
				duration = DeviceDuration
			}
			_, err := l.Try(t.Context(), guess, func() (bool, error) { compared.Add(1); return false, nil })
			if f := problem.From(
				err,
			); err != nil &&
				(f.Kind != problem.TooManyRequests || f.RetryAfter < duration-time.Minute || f.RetryAfter > duration) {
				t.Errorf("got %v, retry after %v, want too many requests and %v to %v", err, f.RetryAfter, duration-time.Minute, duration)
			}
		})
	}
	all.Wait()
	return int(compared.Load())
}

// Each limit holds for simultaneous guesses, with and without Redis.
func TestLimits(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]*cache.Client{"Redis": testkit.Redis(t), "away": away(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			away := &missed{Handler: slog.DiscardHandler}
			l := New(client, slog.New(away))
			host := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}) }
			for name, test := range map[string]struct {
				limit int
				of    func(i int) Guess
			}{
				"a name from an address": {MaxPerNameAndAddress, func(int) Guess { return Guess{Name: "a", Address: network} }},
				"a key":                  {MaxPerKey, func(i int) Guess { return Guess{Name: "k" + string(rune('a'+i%60)), Address: host(i), Key: 7} }},
				"an address":             {MaxPerAddress, func(i int) Guess { return Guess{Name: "n" + string(rune('a'+i)), Address: other} }},
				"a name":                 {MaxPerName, func(i int) Guess { return Guess{Name: "b", Address: host(1000 + i)} }},
				"known devices": {
					MaxFromDevices,
					func(i int) Guess { return Guess{Name: "b", Address: network, KnownDevice: true} },
				},
			} {
				if n := guesses(t, l, 3*test.limit, test.of); n != test.limit {
					t.Errorf("%s: got %d guesses compared, want %d", name, n, test.limit)
				}
			}
			// Addresses of the same /64 count as one caller.
			if n := guesses(t, l, 1, func(int) Guess { return Guess{Name: "a", Address: netip.MustParseAddr("2001:db8::ffff:1")} }); n != 0 {
				t.Errorf("a neighbour in the same /64: got %d guesses compared, want 0", n)
			}
			// Another process shares the count through Redis.
			another := guesses(t, New(client, slog.New(away)), 1, func(int) Guess { return Guess{Name: "a", Address: network} })
			if shared := another == 0; shared != (name == "Redis") && !(name == "Redis" && away.Load()) {
				t.Errorf("another process: got %d of 1 guesses compared, want 0 only with Redis, which is %s", another, name)
			}
		})
	}
}

// A right guess resets the count of its name from its address, and no other count.
func TestRightGuess(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]*cache.Client{"Redis": testkit.Redis(t), "away": away(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := New(client, slog.New(slog.DiscardHandler))
			own, victim := Guess{Name: "mine", Address: network, Key: 7}, Guess{Name: "victim", Address: network}
			for range 3 {
				if n := guesses(t, l, MaxPerKey-1, func(int) Guess { return own }); n != MaxPerKey-1 {
					t.Fatalf("got %d guesses compared, want %d", n, MaxPerKey-1)
				}
				if right, err := l.Try(t.Context(), own, func() (bool, error) { return true, nil }); !right || err != nil {
					t.Fatalf("a right guess: got %t, %v, want true, no error", right, err)
				}
			}
			if n := guesses(t, l, 10, func(int) Guess { return victim }); n != MaxPerNameAndAddress {
				t.Errorf("another name: got %d guesses compared, want %d", n, MaxPerNameAndAddress)
			}
			// A failed comparison does not count as a guess.
			busy := errors.New("busy")
			for range 10 {
				if _, err := l.Try(
					t.Context(),
					Guess{Name: "busy", Address: network},
					func() (bool, error) { return false, busy },
				); !errors.Is(
					err,
					busy,
				) {
					t.Fatalf("got %v, want %v", err, busy)
				}
			}
			// The count of the address keeps the wrong guesses: three times four, and five.
			left := MaxPerAddress - 3*(MaxPerKey-1) - MaxPerNameAndAddress
			if n := guesses(t, l, MaxPerAddress, func(i int) Guess { return Guess{Name: "x" + string(rune('A'+i)), Address: network} }); n != left {
				t.Errorf("the same address: got %d more guesses compared, want %d", n, left)
			}
		})
	}
}
