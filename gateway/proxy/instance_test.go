package proxy

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/ironplane/ironplane/pkg/runtime/mtls"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// serveNamed serves an instance that responds with its name. Its /wait responds only once proceed is closed.
func (i *testMesh) serveNamed(name string, proceed <-chan struct{}, waiting chan<- string) string {
	return i.serve(i.network, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			waiting <- name
			<-proceed
		}
		_, _ = io.WriteString(w, name)
	}))
}

func TestLeastLoadedInstance(t *testing.T) {
	t.Parallel()
	i := newTestMesh(t)
	proceed, waiting := make(chan struct{}), make(chan string)
	url := i.serveGateway(
		New(i.gateway, "network", []string{i.serveNamed("a", proceed, waiting), i.serveNamed("b", proceed, waiting)}, i.log),
	)
	seen := map[string]int{}
	for range 10 {
		response, err := request(t, "GET", url, nil)
		seen[readResponse(t, response, err)]++
	}
	if seen["200 a"] != 5 || seen["200 b"] != 5 {
		t.Errorf("got %v from equally idle instances, want 5 answers of each", seen)
	}
	held := make(chan string)
	go func() {
		response, err := request(t, "GET", url+"/wait", nil)
		held <- readResponse(t, response, err)
	}()
	busy := <-waiting
	for range 10 {
		response, err := request(t, "GET", url, nil)
		if got := readResponse(t, response, err); got == "200 "+busy {
			t.Errorf("got %q, the answer of the busy instance, want the other's", got)
		}
	}
	close(proceed)
	if got := <-held; got != "200 "+busy {
		t.Errorf("got %q, want %q", got, "200 "+busy)
	}
}

func TestInstancesMove(t *testing.T) {
	t.Parallel()
	i := newTestMesh(t)
	proceed, waiting := make(chan struct{}), make(chan string)
	a, b := i.serveNamed("a", proceed, waiting), i.serveNamed("b", proceed, waiting)
	upstream := New(i.gateway, "network", []string{a}, i.log)
	url := i.serveGateway(upstream)
	want := func(prefix string) {
		t.Helper()
		response, err := request(t, "GET", url, nil)
		if got := readResponse(t, response, err); !strings.HasPrefix(got, prefix) {
			t.Errorf("got %q, want %q at its start", got, prefix)
		}
	}
	want("200 a")
	held := make(chan string)
	go func() {
		response, err := request(t, "GET", url+"/wait", nil)
		held <- readResponse(t, response, err)
	}()
	<-waiting
	removed := (*upstream.pool.instances.Load())[0]
	upstream.SetAddresses([]string{b})
	for range 5 {
		want("200 b")
	}
	close(proceed)
	if got := <-held; got != "200 a" {
		t.Errorf("got %q from an instance that left with a request under way, want \"200 a\"", got)
	}
	upstream.SetAddresses(nil)
	want("503 ")
	upstream.SetAddresses([]string{b, a})
	seen := map[string]bool{}
	for range 4 {
		response, err := request(t, "GET", url, nil)
		seen[readResponse(t, response, err)] = true
	}
	if !seen["200 a"] || !seen["200 b"] {
		t.Errorf("got %v, want answers of a and b", seen)
	}
	removed.mu.Lock()
	defer removed.mu.Unlock()
	if len(removed.idleConnections) != 0 {
		t.Errorf("got %d idle connections at an instance that left, want 0", len(removed.idleConnections))
	}
}

// An upstream reports that its instances may have moved if it knows none, or cannot connect to one, but not while they answer.
func TestUnreachableIsReported(t *testing.T) {
	t.Parallel()
	i := newTestMesh(t)
	closed, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	healthy := i.serve(i.network, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for name, c := range map[string]struct {
		addresses  []string
		isReported bool
	}{
		"no instance":          {nil, true},
		"a dead one":           {[]string{closed.Addr().String()}, true},
		"a dead and a healthy": {[]string{closed.Addr().String(), healthy}, true},
		"only a healthy one":   {[]string{healthy}, false},
	} {
		var reported atomic.Int64
		upstream := New(i.gateway, "network", c.addresses, i.log)
		upstream.OnUnreachable(func() { reported.Add(1) })
		url := i.serveGateway(upstream)
		for range 2 { // one for each instance
			response, err := request(t, "GET", url, nil)
			readResponse(t, response, err)
		}
		if got := reported.Load() > 0; got != c.isReported {
			t.Errorf("%s: got a report %t, want %t", name, got, c.isReported)
		}
	}
}

// An instance that accepts requests and never responds fails a few requests, and then one now and then.
func TestSilentInstance(t *testing.T) {
	t.Parallel()
	i := newTestMesh(t)
	var silent atomic.Bool
	silent.Store(true)
	upstream := New(i.gateway, "network", []string{
		i.serve(i.network, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if silent.Load() {
				<-r.Context().Done()
			}
		})), i.serve(i.network, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})),
	}, i.log)
	upstream.progressTimeout = time.Second
	url := i.serveGateway(upstream)
	refused := 0
	began := time.Now()
	for range 200 {
		response, err := request(t, "GET", url, nil)
		if !strings.HasPrefix(readResponse(t, response, err), "200") {
			refused++
		}
	}
	otherTime := time.Since(began) - time.Duration(refused)*upstream.progressTimeout // the time of the successful requests
	if maxRefused := maxFailures + 2 + int(otherTime/restTimeout); refused > maxRefused || refused < maxFailures {
		t.Errorf("got %d of 200 callers refused, want %d to %d", refused, maxFailures, maxRefused)
	}
	silent.Store(false)
	back := (*upstream.pool.instances.Load())[0]
	for deadline := time.Now().Add(testTimeout); back.load() != 0 || back.isResting.Load(); {
		if time.Now().After(deadline) {
			t.Fatal("got an instance that answers again left alone, want it back")
		}
		response, err := request(t, "GET", url, nil)
		readResponse(t, response, err)
	}
}

// A resting instance is tried if there is no other, also while another request finds out whether it is back.
func TestRestingInstancesAreProbed(t *testing.T) {
	t.Parallel()
	i := newTestMesh(t)
	back, unused := closedPort(t), closedPort(t)
	upstream := New(i.gateway, "network", []string{back, unused}, i.log)
	url := i.serveGateway(upstream)
	response, err := request(t, "GET", url, nil) // now both are left alone
	if got := readResponse(t, response, err); !strings.HasPrefix(got, "503 ") {
		t.Fatalf("got %q, want 503", got)
	}
	listener, err := net.Listen("tcp4", back)
	if err != nil {
		t.Fatal(err)
	}
	proceed, waiting := make(chan struct{}), make(chan struct{})
	server := httptest.NewUnstartedServer(mtls.Receive(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			close(waiting)
			<-proceed
		}
	}), i.log))
	server.Listener.Close()
	server.Listener = i.network.Listener(listener)
	server.Start()
	defer server.Close()
	served := func() {
		t.Helper()
		for range 20 {
			response, err := request(t, "GET", url, nil)
			if got := readResponse(t, response, err); got != "200 " {
				t.Errorf("got %q, want 200", got)
			}
		}
	}
	served()
	breaker := (*upstream.pool.instances.Load())[0].breaker
	testkit.Eventually(t, "the breaker lets a request through again", func() bool { return breaker.State() != gobreaker.StateOpen })
	held := make(chan string)
	go func() {
		response, err := request(t, "GET", url+"/wait", nil)
		held <- readResponse(t, response, err)
	}()
	<-waiting
	served()
	close(proceed)
	if got := <-held; got != "200 " {
		t.Errorf("got %q, want 200", got)
	}
}

// When an instance closes a connection, it is about to end, so its idle connections are not used again.
func TestConnectionCloseEmptiesPool(t *testing.T) {
	t.Parallel()
	i := newTestMesh(t)
	var closes atomic.Bool
	proceed, waiting := make(chan struct{}), make(chan struct{})
	upstream := New(i.gateway, "network", []string{i.serve(i.network, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			waiting <- struct{}{}
			<-proceed
		}
		if closes.Load() {
			w.Header().Set("Connection", "close")
		}
	}))}, i.log)
	url := i.serveGateway(upstream)
	held := make(chan string)
	for range 3 {
		go func() {
			response, err := request(t, "GET", url+"/wait", nil)
			held <- readResponse(t, response, err)
		}()
		<-waiting
	}
	close(proceed)
	for range 3 {
		if got := <-held; got != "200 " {
			t.Errorf("got %q, want 200", got)
		}
	}
	closes.Store(true)
	response, err := request(t, "GET", url, nil)
	if got := readResponse(t, response, err); got != "200 " {
		t.Errorf("got %q, want 200", got)
	}
	only := (*upstream.pool.instances.Load())[0]
	only.mu.Lock()
	defer only.mu.Unlock()
	if len(only.idleConnections) != 0 {
		t.Errorf("got %d idle connections at an instance that is about to end, want 0", len(only.idleConnections))
	}
}
