package throttle

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ironplane/ironplane/pkg/problem"
)

var home = netip.MustParseAddr("192.0.2.7")

// begins returns after how long each of several simultaneous calls begins its work.
func begins(t *testing.T, q *Queue, number int, work time.Duration, proved bool, fails error) (after []time.Duration) {
	t.Helper()
	began := time.Now()
	var all sync.WaitGroup
	for range number {
		all.Go(func() {
			got, err := q.Do(t.Context(), home, func() (bool, error) {
				after = append(after, time.Since(began)) // the race detector finds two at the same time
				time.Sleep(work)
				return proved, fails
			})
			if got != proved || !errors.Is(err, fails) {
				t.Errorf("got %v, %v, want %v, %v", got, err, proved, fails)
			}
		})
	}
	all.Wait()
	return after
}

// Calls run one at a time. A rest follows a guess, and nothing else.
func TestTurns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		work   time.Duration
		proved bool
		fails  error
		every  time.Duration
	}{
		"guesses":               {50 * time.Millisecond, false, nil, 200 * time.Millisecond},
		"right ones":            {50 * time.Millisecond, true, nil, 50 * time.Millisecond},
		"what cannot be proved": {50 * time.Millisecond, false, context.DeadlineExceeded, 200 * time.Millisecond},
		"what takes nothing":    {0, false, nil, minRest},
		"what takes long":       {1500 * time.Millisecond, false, nil, 2500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for i, after := range begins(t, NewQueue(4, 0), 4, c.work, c.proved, c.fails) {
					if after != time.Duration(i)*c.every {
						t.Errorf("number %d: got a start after %v, want %v", i, after, time.Duration(i)*c.every)
					}
				}
			})
		})
	}
}

// A caller gets an error if the queue is full, or if it waits for too long. A caller that leaves frees its slot.
func TestFewWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const maxWaiting = 10
		q := NewQueue(maxWaiting, 0)
		goOn := make(chan struct{})
		ctx, leave := context.WithCancel(t.Context())
		proof := func() (bool, error) { return true, nil }
		var all sync.WaitGroup
		all.Go(func() { _, _ = q.Do(t.Context(), home, func() (bool, error) { <-goOn; return true, nil }) })
		synctest.Wait()
		enter := func(ctx context.Context, want error) {
			all.Go(func() {
				if _, err := q.Do(ctx, home, proof); !errors.Is(err, want) {
					t.Errorf("a waiting caller: got %v, want %v", err, want)
				}
			})
			synctest.Wait()
		}
		refused := func() {
			t.Helper()
			if _, err := q.Do(t.Context(), home, proof); !problem.Is(err, problem.Unavailable) || problem.From(err).RetryAfter == 0 {
				t.Errorf("one caller too many: got %v, want unavailable with a time to try again", err)
			}
		}
		for range maxWaiting - 1 {
			enter(t.Context(), context.DeadlineExceeded)
		}
		enter(ctx, context.Canceled)
		refused()
		leave()
		synctest.Wait()
		enter(t.Context(), context.DeadlineExceeded)
		refused()
		time.Sleep(waitTimeout)
		synctest.Wait()
		enter(t.Context(), nil)
		close(goOn)
		all.Wait()
		if _, err := q.Do(t.Context(), home, proof); err != nil {
			t.Errorf("a caller after all were served: %v", err)
		}
		synctest.Wait()
		q.wantEmpty(t)
	})
}

// wantEmpty checks that no caller waits, and that the queue stores no network without guesses.
func (q *Queue) wantEmpty(t *testing.T) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) != 0 || q.isBusy {
		t.Errorf("got %d waiting, busy: %t, want none and false", len(q.waiting), q.isBusy)
	}
	for prefix, u := range q.networks.usages {
		if u.present != 0 || u.guesses == 0 {
			t.Errorf("%s: got %d callers and %d guesses remembered, want no callers and some guesses", prefix, u.present, u.guesses)
		}
	}
}

// guessers are addresses of neighbouring networks, as an attacker has them.
type guessers func(n int) netip.Addr

var attacks = map[string]guessers{
	"one address":                     func(int) netip.Addr { return netip.MustParseAddr("198.51.100.1") },
	"the /64s of a /48":               func(n int) netip.Addr { return parse("2001:db8:7:%x::1", n%65536) },
	"the /48s of a /32":               func(n int) netip.Addr { return parse("2001:db8:%x::1", n%65536) },
	"the addresses of a /24":          func(n int) netip.Addr { return parse("198.51.100.%d", n%256) },
	"/24s of one /16":                 func(n int) netip.Addr { return parse("198.51.%d.1", n%70) },
	"/24s of many /16s":               func(n int) netip.Addr { return parse("%d.51.100.1", 20+n%70) },
	"/64s of a /48, and distant /24s": func(n int) netip.Addr { return parse([]string{"2001:db8:7:%x::1", "%d.51.100.1"}[n%2], 20+n/2%70) },
	"/64s of a /48, and /24s":         func(n int) netip.Addr { return parse([]string{"2001:db8:7:%x::1", "198.51.%d.1"}[n%2], n/2%70) },
	"IPv4 mapped to IPv6, a /24":      func(n int) netip.Addr { return parse("::ffff:198.51.100.%d", n%256) },
}

func parse(format string, args ...any) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf(format, args...))
}

// While more callers guess than may wait, callers from new addresses have their turn, even if their wider networks guess too:
// at once, as soon as the attacker's networks have guessed. Afterwards all networks are forgotten.
func TestNetworksWaitBehindThemselves(t *testing.T) {
	t.Parallel()
	for label, attack := range attacks {
		t.Run(label, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const work, maxWaiting, parallel = 50 * time.Millisecond, 100, 140
				q := NewQueue(maxWaiting, 0)
				ctx, stop := context.WithCancel(t.Context())
				var all sync.WaitGroup
				for first := range parallel {
					all.Go(func() {
						for n := first; ctx.Err() == nil; n += parallel {
							_, _ = q.Do(ctx, attack(n), func() (bool, error) { time.Sleep(work); return false, nil })
							time.Sleep(100 * time.Millisecond)
						}
					})
				}
				time.Sleep(time.Millisecond)
				for n := range 30 {
					// As long as the attacker's networks are new, they are like people's: a person waits, but is not refused.
					maxWait := waitTimeout
					if n == 10 {
						time.Sleep(30 * time.Second) // each network has guessed
					}
					if n >= 10 {
						maxWait = work + 2*(1+restFactor)*work
					}
					began := time.Now()
					people := []netip.Addr{
						parse("203.0.%d.9", n), parse("2a00:%x::1", n+1), parse("198.51.%d.200", 100+n),
						parse("%d.51.9.9", 20+n%70), parse("2001:db8:a%03x::1", n),
					}
					if label == "the /48s of a /32" { // a /32 waits behind itself
						people = people[:3]
					}
					proved, err := q.Do(t.Context(), people[n%len(people)], func() (bool, error) { time.Sleep(work); return true, nil })
					if waited := time.Since(began); !proved || err != nil || waited > maxWait {
						t.Errorf("%s: got %t, %v after %v, want its turn after %v at most", people[n%len(people)], proved, err, waited, maxWait)
					}
					time.Sleep(time.Second)
				}
				stop()
				all.Wait()
				time.Sleep(time.Minute)
				q.wantEmpty(t)
				time.Sleep(20 * halfLife)
				if _, err := q.Do(t.Context(), home, func() (bool, error) { return true, nil }); err != nil || len(q.networks.usages) != 0 {
					t.Errorf("got %v and %d networks remembered after a day, want none", err, len(q.networks.usages))
				}
			})
		})
	}
}

// Guesses from any number of networks, and callers that are refused or leave, take bounded memory. They do not make the
// queue forget others' guesses.
func TestBoundedMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(10, 0)
		guess := func(from netip.Addr) {
			_, _ = q.Do(t.Context(), from, func() (bool, error) { return false, nil })
			time.Sleep(2 * minRest)
		}
		bad := netip.MustParseAddr("198.51.100.1")
		for range 100 {
			guess(bad)
		}
		goOn := make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() { _, _ = q.Do(t.Context(), home, func() (bool, error) { <-goOn; return true, nil }) })
		synctest.Wait()
		ctx, leave := context.WithCancel(t.Context())
		for n := range 2 * maxNetworks {
			all.Go(func() {
				_, _ = q.Do(ctx, parse("%d.%d.%d.9", 1+n%200, n/200, n%7), func() (bool, error) { return true, nil })
			})
			synctest.Wait()
		}
		leave()
		synctest.Wait()
		if n := q.networks.usages[netip.PrefixFrom(bad, 32)].guesses; n != 100 || len(q.networks.usages) > 2*Levels {
			t.Errorf("after many refusals: got %d guesses of %s and %d networks, want 100 and a few", n, bad, len(q.networks.usages))
		}
		close(goOn)
		all.Wait()
		for n := range maxNetworks {
			guess(parse("2001:%x:%x:%x::1", n%256, n, n))
			if len(q.networks.usages) > maxNetworks {
				t.Fatalf("got %d networks remembered, want at most %d", len(q.networks.usages), maxNetworks)
			}
		}
		q.wantEmpty(t)
	})
}
