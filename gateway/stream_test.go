package gateway

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/testkit"
)

// eventService is a service that answers with a stream of the sent texts.
type eventService struct{ texts chan string }

func (s *eventService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	w.WriteHeader(http.StatusOK)
	_ = out.Flush()
	for {
		select {
		case text := <-s.texts:
			if _, err := io.WriteString(w, text+"\n"); err != nil || out.Flush() != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// openStream opens a stream of a new key at the gateway.
func openStream(t *testing.T) (d *testGateway, service *eventService, key string, lines *bufio.Reader) {
	t.Helper()
	d = newTestGateway(t, unlimited)
	service = &eventService{make(chan string)}
	d.gateway.upstreams["network"] = service
	server := httptest.NewServer(d.gateway)
	t.Cleanup(server.Close)
	key = d.identity.issue(7)
	r, err := http.NewRequestWithContext(t.Context(), "GET", server.URL+"/port-speed", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != 200 {
		t.Fatalf("got %d, want 200", response.StatusCode)
	}
	return d, service, key, bufio.NewReader(response.Body)
}

// ageStreams makes the decisions about all streams too old to be used again.
func (d *testGateway) ageStreams() {
	w := d.gateway.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	for r := range w.requests {
		older := *r.resolvedKey
		older.asOf = older.asOf.Add(-time.Second)
		r.resolvedKey = &older
	}
}

// wantEnd fails the test unless the stream ends without another text.
func wantEnd(t *testing.T, lines *bufio.Reader) {
	t.Helper()
	if line, err := lines.ReadString('\n'); err == nil || line != "" {
		t.Errorf("got %q (%v), want the end of the stream", line, err)
	}
}

// An idle stream's key is not looked up. It is before something is sent, and nothing is sent with a revoked one.
func TestStreamIsDecidedBeforeEachWrite(t *testing.T) {
	t.Parallel()
	d, service, key, lines := openStream(t)
	service.texts <- "first"
	if line, err := lines.ReadString('\n'); line != "first\n" {
		t.Fatalf("got %q (%v), want the first text as soon as it is sent", line, err)
	}
	testkit.Eventually(t, "the watcher rests", func() bool {
		d.gateway.watcher.mu.Lock()
		defer d.gateway.watcher.mu.Unlock()
		return len(d.gateway.watcher.lookups) == 0
	})
	if d.gateway.watcher.checkRequests(t.Context()) {
		t.Error("got an idle stream that is checked again soon, want it left alone")
	}
	d.identity.revoke(t, key)
	d.ageStreams()
	service.texts <- "second"
	wantEnd(t, lines)
}

// A revocation that a service announces ends an idle stream.
func TestRevocationEndsIdleStream(t *testing.T) {
	t.Parallel()
	d, _, key, lines := openStream(t)
	d.identity.revoke(t, key)
	d.gateway.watcher.checkStreams()
	wantEnd(t, lines)
}

// Streams end when the process is told to end, also those that begin then.
func TestStreamsAreDrained(t *testing.T) {
	t.Parallel()
	d, _, _, lines := openStream(t)
	d.gateway.Drain()
	if _, err := lines.ReadString('\n'); err != io.EOF { //nolint:errorlint // the reader returns it as it is
		t.Errorf("got %v, want the regular end of the stream", err)
	}
	if w := get(d.gateway, testAddress, d.identity.issue(8), "/port-speed"); w.Code != 200 || w.Body.Len() > 0 {
		t.Errorf("got %d %s, want a stream that ends at once", w.Code, w.Body)
	}
}
