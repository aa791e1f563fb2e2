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

// load is connections that use a key again and again, and what came of it.
type load struct {
	stop     func()
	began    time.Time
	lastSent atomic.Int64 // when the last request was sent that was answered with 200, since began
	good     atomic.Int64
	refused  atomic.Int64 // 401 and 403, and 404: of what it may not know of any more
	failed   atomic.Int64 // anything else
	failure  atomic.Value
}

const connections = 32

// portSpeeds are what the keys of admins are used for.
const portSpeeds = "/port-speed?per_page=1"

// pause is how long each of them waits between two requests. Beside the other tests, there is no room for more.
func pause() time.Duration {
	if *full {
		return 2 * time.Millisecond
	}
	return 20 * time.Millisecond
}

func newLoad(t *testing.T, doors []*testkit.Client, path, key string) *load {
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{began: time.Now()}
	transport := &http.Transport{MaxIdleConnsPerHost: connections}
	var users sync.WaitGroup
	for n := range connections {
		users.Go(func() {
			for ctx.Err() == nil {
				l.use(ctx, transport, doors[n%len(doors)].URL+path, key)
				time.Sleep(pause())
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

func (l *load) use(ctx context.Context, transport http.RoundTripper, url, key string) {
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

// more waits until n more requests were answered with 200, or refused.
func (l *load) more(t *testing.T, answered *atomic.Int64, n int64) {
	t.Helper()
	n += answered.Load()
	testkit.Eventually(t, "more requests are answered", func() bool { return answered.Load() >= n }, func() string {
		return fmt.Sprintf(
			"%d let in, %d refused, %d failed, the last with %v",
			l.good.Load(),
			l.refused.Load(),
			l.failed.Load(),
			l.failure.Load(),
		)
	})
}
