package revocation

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/testkit"
)

// load is a number of connections that use a key continuously, and counts the responses.
type load struct {
	stop     func()
	began    time.Time
	lastSent atomic.Int64 // when the last accepted request was sent, in nanoseconds since began
	good     atomic.Int64
	refused  atomic.Int64 // 401, 403, and 404 for items that the key may no longer see
	failed   atomic.Int64 // all other responses, and errors
	failure  atomic.Value
}

const connections = 32

// portSpeeds is the path that the keys of admins request.
const portSpeeds = "/port-speed?per_page=1"

// interval returns the time between two requests of a connection. The short run shares the machine with other
// tests.
func interval() time.Duration {
	if *full {
		return 2 * time.Millisecond
	}
	return 20 * time.Millisecond
}

func newLoad(t *testing.T, gateways []*testkit.Client, path, key string) *load {
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{began: time.Now()}
	transport := &http.Transport{MaxIdleConnsPerHost: connections}
	var users sync.WaitGroup
	for n := range connections {
		users.Go(func() {
			for ctx.Err() == nil {
				l.request(ctx, transport, gateways[n%len(gateways)].URL+path, key)
				time.Sleep(interval())
			}
		})
	}
	l.stop = sync.OnceFunc(func() {
		cancel()
		users.Wait()
		transport.CloseIdleConnections()
	})
	t.Cleanup(l.stop)
	return l
}

func (l *load) request(ctx context.Context, transport http.RoundTripper, url, key string) {
	r, err := http.NewRequestWithContext(ctx, "GET", url, http.NoBody)
	if err != nil {
		panic(err)
	}
	r.Header.Set("X-Api-Key", key)
	sent := time.Since(l.began)
	response, err := transport.RoundTrip(r)
	if err != nil {
		if ctx.Err() == nil {
			l.failed.Add(1)
			l.failure.Store(err.Error())
		}
		return
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	switch response.StatusCode {
	case http.StatusOK:
		l.good.Add(1)
		for last := l.lastSent.Load(); int64(sent) > last && !l.lastSent.CompareAndSwap(last, int64(sent)); last = l.lastSent.Load() {
		}
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		l.refused.Add(1)
	default:
		l.failed.Add(1)
		l.failure.Store(response.Status + " " + string(text))
	}
}

// awaitMore waits until the counter has grown by n.
func (l *load) awaitMore(t *testing.T, counter *atomic.Int64, n int64) {
	t.Helper()
	n += counter.Load()
	testkit.Eventually(t, "more requests have a response", func() bool { return counter.Load() >= n }, func() string {
		return fmt.Sprintf(
			"%d accepted, %d refused, %d failed, the last with %v",
			l.good.Load(),
			l.refused.Load(),
			l.failed.Load(),
			l.failure.Load(),
		)
	})
}
