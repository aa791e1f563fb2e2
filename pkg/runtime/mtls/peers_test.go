package mtls

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/pkg/runtime/peers"
)

// answering responds with its name, the sender and the request.
func answering(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call := principal.FromContext(r.Context())
		fmt.Fprintf(w, `"%s %s %s %s %s"`, name, call.Peer, call.RequestID, r.Method, r.RequestURI)
	})
}

func ask(t *testing.T, p *peers.Peers) (string, error) {
	t.Helper()
	var text string
	ctx := principal.NewContext(t.Context(), &principal.Call{RequestID: "r1", Principal: caller.Principal})
	err := p.Ask(ctx, "network", "/internal/x?y=%20z", &text)
	return text, err
}

// A process forwards the request id of a question, but not the principal.
func TestAsk(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	address := i.serve(i.network, answering("a"))
	for wanted, p := range map[string]*peers.Peers{
		"a gateway r1 GET /internal/x?y=%20z": i.peers(i.gateway, address),
		"a clients r1 GET /internal/x?y=%20z": i.peers(i.identity("clients"), address),
	} {
		if got, err := ask(t, p); err != nil || got != wanted {
			t.Errorf("got %q, %v, want %q", got, err, wanted)
		}
	}
	together := peers.New("clients", map[string]http.Handler{"network": answering("a")})
	if got, err := ask(t, together); err != nil || got != "a clients r1 GET " {
		t.Errorf("got %q, %v, want %q", got, err, "a clients r1 GET ")
	}
	if _, err := ask(t, i.gateway.NewPeers(nil)); err == nil || errors.Is(err, mesh.ErrUnavailable) {
		t.Errorf("a service without addresses: got %v, want an error other than %v", err, mesh.ErrUnavailable)
	}
}

// Instances take turns. An instance that is unreachable, is another service, or dies while it answers is replaced by the
// next.
func TestAskAnother(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	closed, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	dies := i.serve(i.network, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	p := i.peers(i.gateway, closed.Addr().String(), i.serve(i.identity("identity"), http.NotFoundHandler()), dies,
		i.serve(i.network, answering("a")), i.serve(i.network, answering("b")))
	reported := map[string]int{}
	p.Unreachable = func(service string) { reported[service]++ }
	seen := map[byte]int{}
	for range 20 {
		got, err := ask(t, p)
		if err != nil {
			t.Fatal(err)
		}
		seen[got[0]]++
	}
	if len(reported) != 1 || reported["network"] < 3 {
		t.Errorf("got reports %v, want network for each of the three that failed", reported)
	}
	p.SetInstances("network", nil)
	if _, err := ask(t, p); !errors.Is(err, mesh.ErrUnavailable) || reported["network"] < 4 {
		t.Errorf("no instance: got %v and reports %v, want %v and one more report", err, reported, mesh.ErrUnavailable)
	}
	if seen['a'] < 5 || seen['b'] < 5 {
		t.Errorf("got %d answers of a and %d of b, want 5 or more of each", seen['a'], seen['b'])
	}
	p.SetInstances("network", []string{closed.Addr().String()})
	if _, err := ask(t, p); !errors.Is(err, mesh.ErrUnavailable) {
		t.Errorf("a closed address: got %v, want %v", err, mesh.ErrUnavailable)
	}
	p.SetInstances("network", nil)
	if _, err := ask(t, p); !errors.Is(err, mesh.ErrUnavailable) {
		t.Errorf("no address: got %v, want %v", err, mesh.ErrUnavailable)
	}
}

// An instance that timed out is asked last for a while.
func TestAskSilent(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	var silenced atomic.Int64
	silent := i.serve(i.network, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		silenced.Add(1)
		<-r.Context().Done()
	}))
	p := i.peers(i.gateway, silent, i.serve(i.network, answering("a")))
	const wait = 2 * time.Second
	waited := 0
	began := time.Now()
	for range 20 {
		ctx, cancel := context.WithTimeout(principal.NewContext(t.Context(), caller), wait)
		if err := p.Ask(ctx, "network", "/", new(string)); errors.Is(err, mesh.ErrUnavailable) {
			waited++
		}
		cancel()
	}
	if maxWaits := 1 + int((time.Since(began)-time.Duration(waited)*wait)/time.Second); waited > maxWaits || silenced.Load() == 0 {
		t.Errorf("got %d of 20 that waited, %d silent requests, want at most %d and at least 1", waited, silenced.Load(), maxWaits)
	}
}

// Responses must be complete, not too large, and of the expected form.
func TestInvalidResponses(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	for name, c := range map[string]struct {
		handler       http.HandlerFunc
		isUnavailable bool
		message       string
	}{
		"a fault":       {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, true, "503"},
		"a refusal":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, false, "403"},
		"another place": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/y", http.StatusFound) }, false, "302"},
		"no JSON":       {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{") }, false, "decode"},
		"too much": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat(" ", 8<<20+1))
		}, false, ""},
		"broken off": {func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, true, ""},
	} {
		for way, p := range map[string]*peers.Peers{
			"apart":    i.peers(i.gateway, i.serve(i.network, c.handler)),
			"together": peers.New(principal.Gateway, map[string]http.Handler{"network": c.handler}),
		} {
			_, err := ask(t, p)
			if err == nil || errors.Is(err, mesh.ErrUnavailable) != c.isUnavailable || !strings.Contains(err.Error(), c.message) {
				t.Errorf("%s, %s: got %v, want an error that says %q, away %t", name, way, err, c.message, c.isUnavailable)
			}
		}
	}
}

// A question to an instance that accepts and never answers times out, and closes the connection.
func TestAskTimeout(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	silent, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		c, err := silent.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = bufio.NewReader(c).Peek(1)
		_, _ = io.Copy(io.Discard, c) // until the other end gives up
	}()
	ctx, cancel := context.WithTimeout(principal.NewContext(t.Context(), caller), 100*time.Millisecond)
	defer cancel()
	if err := i.peers(i.gateway, silent.Addr().String()).Ask(ctx, "network", "/", new(string)); !errors.Is(err, mesh.ErrUnavailable) {
		t.Errorf("a silent instance: got %v, want %v", err, mesh.ErrUnavailable)
	}
	select {
	case <-heard:
	case <-time.After(testTimeout):
		t.Error("got an open connection, want it closed")
	}
}
