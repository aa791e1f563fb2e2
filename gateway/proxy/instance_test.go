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

// named is an instance that says its name, and does not answer /wait before it may.
func (i *install) named(name string, may <-chan struct{}, waits chan<- string) string {
	return i.serve(i.network, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			waits <- name
			<-may
		}
		_, _ = io.WriteString(w, name)
	}))
}

func TestIdlestInstance(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	may, waits := make(chan struct{}), make(chan string)
	url := i.front(New(i.gateway, "network", []string{i.named("a", may, waits), i.named("b", may, waits)}, i.log))
	seen := map[string]int{}
	for range 10 {
		response, err := do(t, "GET", url, nil)
		seen[text(t, response, err)]++
	}
	if seen["200 a"] != 5 || seen["200 b"] != 5 {
		t.Errorf("got %v from equally idle instances, want 5 answers of each", seen)
	}
	held := make(chan string)
	go func() {
		response, err := do(t, "GET", url+"/wait", nil)
		held <- text(t, response, err)
	}()
	busy := <-waits
	for range 10 {
		response, err := do(t, "GET", url, nil)
		if got := text(t, response, err); got == "200 "+busy {
			t.Errorf("got %q, the answer of the busy instance, want the other's", got)
		}
	}
	close(may)
	if got := <-held; got != "200 "+busy {
		t.Errorf("got %q, want %q", got, "200 "+busy)
	}
}

func TestInstancesMove(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	may, waits := make(chan struct{}), make(chan string)
	a, b := i.named("a", may, waits), i.named("b", may, waits)
	upstream := New(i.gateway, "network", []string{a}, i.log)
	url := i.front(upstream)
	want := func(is string) {
		t.Helper()
		response, err := do(t, "GET", url, nil)
		if got := text(t, response, err); !strings.HasPrefix(got, is) {
			t.Errorf("got %q, want %q at its start", got, is)
		}
	}
	want("200 a")
	held := make(chan string)
	go func() {
		response, err := do(t, "GET", url+"/wait", nil)
		held <- text(t, response, err)
	}()
	<-waits
	left := (*upstream.pool.instances.Load())[0]
	upstream.Move([]string{b})
	for range 5 {
		want("200 b")
	}
	close(may)
	if got := <-held; got != "200 a" {
		t.Errorf("got %q from an instance that left with a request under way, want \"200 a\"", got)
	}
	upstream.Move(nil)
	want("503 ")
	upstream.Move([]string{b, a})
	seen := map[string]bool{}
	for range 4 {
		response, err := do(t, "GET", url, nil)
		seen[text(t, response, err)] = true
	}
	if !seen["200 a"] || !seen["200 b"] {
		t.Errorf("got %v, want answers of a and b", seen)
	}
	left.mu.Lock()
	defer left.mu.Unlock()
	if len(left.idle) != 0 {
		t.Errorf("got %d idle connections at an instance that left, want 0", len(left.idle))
	}
}

// An instance that takes requests and never answers costs a few callers, and then one now and then.
func TestSilentInstance(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	var silent atomic.Bool
	silent.Store(true)
	upstream := New(i.gateway, "network", []string{
		i.serve(i.network, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if silent.Load() {
				<-r.Context().Done()
			}
		})), i.serve(i.network, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})),
	}, i.log)
	upstream.progress = time.Second
	url := i.front(upstream)
	refused := 0
	began := time.Now()
	for range 200 {
		response, err := do(t, "GET", url, nil)
		if !strings.HasPrefix(text(t, response, err), "200") {
			refused++
		}
	}
	others := time.Since(began) - time.Duration(refused)*upstream.progress // how long who was answered took
	if most := tolerated + 2 + int(others/restTime); refused > most || refused < tolerated {
		t.Errorf("got %d of 200 callers refused, want %d to %d", refused, tolerated, most)
	}
	silent.Store(false)
	back := (*upstream.pool.instances.Load())[0]
	for deadline := time.Now().Add(soon); back.load() != 0 || back.resting.Load(); {
		if time.Now().After(deadline) {
			t.Fatal("got an instance that answers again left alone, want it back")
		}
		response, err := do(t, "GET", url, nil)
		text(t, response, err)
	}
}

// An instance that is left alone is tried where there is no other, also while one request finds out whether it is back.
func TestNobodyElseIsLeft(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	back, gone := closedPort(t), closedPort(t)
	upstream := New(i.gateway, "network", []string{back, gone}, i.log)
	url := i.front(upstream)
	response, err := do(t, "GET", url, nil) // now both are left alone
	if got := text(t, response, err); !strings.HasPrefix(got, "503 ") {
		t.Fatalf("got %q, want 503", got)
	}
	listener, err := net.Listen("tcp4", back)
	if err != nil {
		t.Fatal(err)
	}
	may, waits := make(chan struct{}), make(chan struct{})
	server := httptest.NewUnstartedServer(mtls.Receive(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			close(waits)
			<-may
		}
	}), i.log))
	server.Listener.Close()
	server.Listener = i.network.Listener(listener)
	server.Start()
	defer server.Close()
	served := func() {
		t.Helper()
		for range 20 {
			response, err := do(t, "GET", url, nil)
			if got := text(t, response, err); got != "200 " {
				t.Errorf("got %q, want 200", got)
			}
		}
	}
	served()
	breaker := (*upstream.pool.instances.Load())[0].breaker
	testkit.Eventually(t, "the breaker lets a request through again", func() bool { return breaker.State() != gobreaker.StateOpen })
	held := make(chan string)
	go func() {
		response, err := do(t, "GET", url+"/wait", nil)
		held <- text(t, response, err)
	}()
	<-waits
	served()
	close(may)
	if got := <-held; got != "200 " {
		t.Errorf("got %q, want 200", got)
	}
}

// An instance that ends a connection is about to end: what waits for its next use there is not used again.
func TestInstanceThatClosesIsForgotten(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	var closing atomic.Bool
	may, waits := make(chan struct{}), make(chan struct{})
	upstream := New(i.gateway, "network", []string{i.serve(i.network, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			waits <- struct{}{}
			<-may
		}
		if closing.Load() {
			w.Header().Set("Connection", "close")
		}
	}))}, i.log)
	url := i.front(upstream)
	held := make(chan string)
	for range 3 {
		go func() {
			response, err := do(t, "GET", url+"/wait", nil)
			held <- text(t, response, err)
		}()
		<-waits
	}
	close(may)
	for range 3 {
		if got := <-held; got != "200 " {
			t.Errorf("got %q, want 200", got)
		}
	}
	closing.Store(true)
	response, err := do(t, "GET", url, nil)
	if got := text(t, response, err); got != "200 " {
		t.Errorf("got %q, want 200", got)
	}
	only := (*upstream.pool.instances.Load())[0]
	only.mu.Lock()
	defer only.mu.Unlock()
	if len(only.idle) != 0 {
		t.Errorf("got %d idle connections at an instance that is about to end, want 0", len(only.idle))
	}
}
