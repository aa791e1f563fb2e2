package limits

import (
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/testkit"
)

func newRate(t testing.TB, client *cache.Client, rate, burst int) *Rate[int64] {
	t.Helper()
	counter := func() prometheus.Counter { return prometheus.NewCounter(prometheus.CounterOpts{Name: "test"}) }
	callerName := func(caller int64) string { return strconv.FormatInt(caller, 10) }
	l := NewRate("test", callerName, cache.NewLink(client, "limits", slog.New(slog.DiscardHandler)), counter(), counter())
	l.Set(rate, burst)
	return l
}

// Few requests of a busy caller wait for Redis, because the limit fetches batches.
func TestBatches(t *testing.T) {
	t.Parallel()
	client := testkit.Redis(t)
	l := newRate(t, client, 1000, 1000)
	countCommands := func() (n int) {
		_, after, _ := strings.Cut(client.Info(t.Context(), "stats").Val(), "total_commands_processed:")
		if _, err := fmt.Sscan(after, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	const requests = 500
	before := countCommands()
	for range requests {
		if err := l.Take(t.Context(), http.Header{}, 1); err != nil {
			t.Fatal(err)
		}
	}
	if n := countCommands() - before; n == 0 || n > requests/2 {
		t.Errorf("got %d commands for %d requests, want at least one and at most half as many", n, requests)
	}
}

// The memory for callers is bounded, however many there are.
func TestManyCallers(t *testing.T) {
	t.Parallel()
	away, err := cache.Open(secret.New("redis://127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = away.Close() })
	l := newRate(t, away, 10, 10)
	header := http.Header{}
	for caller := range int64(3 * maxBuckets) {
		_ = l.Take(t.Context(), header, caller)
	}
	l.buckets.CleanUp()
	if got := l.buckets.EstimatedSize(); got > maxBuckets {
		t.Errorf("got %d callers in memory, want at most %d", got, maxBuckets)
	}
}

func BenchmarkRate(b *testing.B) {
	l := newRate(b, testkit.Redis(b), 1_000_000, 1_000_000)
	header := http.Header{}
	b.ReportAllocs()
	for b.Loop() {
		_ = l.Take(b.Context(), header, 1)
	}
}
