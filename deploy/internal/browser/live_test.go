package browser

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/ironplane/ironplane/pkg/testkit"
)

// eventGate passes requests on to a gateway. It can cut the streams of events, and counts the open ones.
type eventGate struct {
	mu    sync.Mutex
	isCut bool
	open  map[*http.Request]context.CancelFunc
}

func (g *eventGate) serve(w http.ResponseWriter, r *http.Request, gateway http.Handler) {
	if r.URL.Path != "/event" {
		gateway.ServeHTTP(w, r)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	g.mu.Lock()
	isCut := g.isCut
	if !isCut {
		g.open[r] = cancel
	}
	g.mu.Unlock()
	if isCut {
		http.Error(w, "cut", http.StatusBadGateway)
		return
	}
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.open, r)
	}()
	gateway.ServeHTTP(w, r.WithContext(ctx))
}

// cut ends the open streams and refuses new ones, or lets them through again.
func (g *eventGate) cut(is bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.isCut = is
	for _, cancel := range g.open {
		cancel()
	}
}

func (g *eventGate) streams() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.open)
}

// TestConsoleIsLive has two tabs that show what others change, by one stream of events. When the tab with the stream is closed, the other
// one takes over. What changed while there was no stream is shown after it.
func TestConsoleIsLive(t *testing.T) {
	t.Parallel()
	gate := &eventGate{open: map[*http.Request]context.CancelFunc{}}
	w := open(t)
	first := &consoleWindow{w, newSite(t, gate.serve)}
	create := func(name string) {
		body := map[string]any{"first": name, "last": "Miller", "email": strings.ToLower(name) + "@example.com"}
		first.site.admin.Do("POST", "/client", body).Want(200)
	}
	create("Ann")
	first.signInWithKey(first.site.admin.Key, "/client")
	first.awaitText("Ann Miller")
	testkit.Eventually(t, "there is a stream", func() bool { return gate.streams() == 1 })
	create("Ben")
	first.awaitText("Ben Miller")

	ctx, cancel := chromedp.NewContext(w.Context)
	defer cancel()
	second := &consoleWindow{&window{t: t, Context: ctx}, first.site}
	second.do(chromedp.Navigate(first.site.url + "/-/console/client/1"))
	second.awaitText("ann@example.com")
	edit := func(last string) {
		first.site.admin.Do("PATCH", "/client/1", map[string]any{"last": last}).Want(200)
		second.awaitText("Ann " + last)
	}
	edit("Baker")
	first.awaitText("Ann Baker")
	if n := gate.streams(); n != 1 {
		t.Errorf("got %d streams for two tabs, want 1", n)
	}

	first.do(chromedp.Navigate("about:blank"))
	testkit.Eventually(t, "the second tab has the stream", func() bool { return gate.streams() == 1 })
	edit("Cook")

	gate.cut(true)
	first.site.admin.Do("PATCH", "/client/1", map[string]any{"last": "Dyer"}).Want(200)
	gate.cut(false)
	second.awaitText("Ann Dyer")
	edit("Evans")
}
