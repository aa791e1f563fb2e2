package resolver

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ironplane/ironplane/pkg/testkit/syncbuf"
)

// names is a name server in memory.
type names struct {
	mu      sync.Mutex
	byHost  map[string]string // addresses, separated by spaces; a host that is not in it fails
	lookups int
	hangs   bool
}

func (n *names) set(host, addresses string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.byHost[host] = addresses
}

func (n *names) fail(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.byHost, host)
}

func (n *names) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lookups
}

func (n *names) lookup(ctx context.Context, _, host string) (found []netip.Addr, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lookups++
	if n.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	addresses, isKnown := n.byHost[host]
	if !isKnown {
		return nil, errors.New("no such host")
	}
	for _, address := range strings.Fields(addresses) {
		found = append(found, netip.MustParseAddr(address))
	}
	return found, nil
}

// watched is a running Watcher with what it has reported.
type watched struct {
	*Watcher
	mu      sync.Mutex
	updates [][]string
}

// last waits until nothing happens, and returns the last addresses and the number of updates.
func (w *watched) last() (string, int) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.updates) == 0 {
		return "", 0
	}
	return strings.Join(w.updates[len(w.updates)-1], " "), len(w.updates)
}

func watch(t *testing.T, n *names, log *slog.Logger, addresses ...string) *watched {
	t.Helper()
	w := &watched{Watcher: New("network", addresses, n.lookup, log)}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		w.Run(ctx, func(addresses []string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.updates = append(w.updates, addresses)
		})
	})
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return w
}

func TestWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &names{byHost: map[string]string{"network": "10.0.0.2 10.0.0.1 ::ffff:10.0.0.1 2001:db8::1"}}
		var log syncbuf.Buffer
		w := watch(t, n, slog.New(slog.NewTextHandler(&log, nil)), "network:8443", "10.0.0.9:9443", "old:8443")
		want := func(addresses string, updates int) {
			t.Helper()
			if got, count := w.last(); got != addresses || count != updates {
				t.Errorf("got %q after %d updates, want %q after %d", got, count, addresses, updates)
			}
		}
		want("10.0.0.1:8443 10.0.0.2:8443 10.0.0.9:9443 [2001:db8::1]:8443", 1)

		n.set("network", "10.0.0.3")
		time.Sleep(Interval - time.Nanosecond)
		want("10.0.0.1:8443 10.0.0.2:8443 10.0.0.9:9443 [2001:db8::1]:8443", 1)
		time.Sleep(time.Nanosecond)
		want("10.0.0.3:8443 10.0.0.9:9443", 2)

		time.Sleep(10 * Interval) // unchanged addresses are no update
		want("10.0.0.3:8443 10.0.0.9:9443", 2)

		n.fail("network") // an outage of the name server
		time.Sleep(Interval)
		want("10.0.0.3:8443 10.0.0.9:9443", 2)
		n.set("network", "") // no instance is ready
		time.Sleep(Interval)
		want("10.0.0.3:8443 10.0.0.9:9443", 2)

		n.set("old", "10.0.0.4")
		time.Sleep(Interval)
		want("10.0.0.3:8443 10.0.0.4:8443 10.0.0.9:9443", 3)
		for part, count := range map[string]int{"fails": 2, "succeeds again": 2, "host=old": 2, "host=network": 2} {
			if got := strings.Count(log.String(), part); got != count {
				t.Errorf("got %d lines with %q, want %d:\n%s", got, part, count, log.String())
			}
		}
	})
}

// A failed connection leads to a lookup at once, but to no more than one a second.
func TestRefresh(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &names{byHost: map[string]string{"network": "10.0.0.1"}}
		w := watch(t, n, slog.New(slog.DiscardHandler), "network:8443")
		time.Sleep(minInterval)
		if got, _ := w.last(); got != "10.0.0.1:8443" {
			t.Fatalf("got %q, want the first address", got)
		}
		n.set("network", "10.0.0.2")
		w.Refresh()
		if got, _ := w.last(); got != "10.0.0.2:8443" {
			t.Errorf("got %q, want the new address without a delay", got)
		}
		before := n.count()
		for range 1000 {
			w.Refresh()
			time.Sleep(minInterval / 100)
		}
		if got := n.count() - before; got < 9 || got > 11 {
			t.Errorf("got %d lookups for failures in ten seconds, want 10", got)
		}
	})
}

// A service that starts before its peers does not wait for them: it reports that it knows no instance.
func TestNameServerHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, &names{hangs: true}, slog.New(slog.DiscardHandler), "network:8443")
		time.Sleep(lookupTimeout)
		if got, count := w.last(); got != "" || count != 1 {
			t.Errorf("got %q after %d updates, want one update without addresses", got, count)
		}
	})
}

func TestAddressesWithoutNames(t *testing.T) {
	t.Parallel()
	w := New("network", []string{"10.0.0.1:8443", "[2001:db8::1]:8443", "[fe80::1%eth0]:8443"}, new(names).lookup, slog.Default())
	if w != nil {
		t.Errorf("got a Watcher of %v, want none", w.endpoints)
	}
	w.Refresh()
}
