package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	ironplane "github.com/ironplane/ironplane/pkg/client"
	"github.com/ironplane/ironplane/pkg/secret"
)

// pipeListener accepts the other ends of the connections that dial returns. Tests on a fake clock have no sockets.
type pipeListener struct {
	connections chan net.Conn
	closed      chan struct{}
}

func (l *pipeListener) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	l.connections <- far
	return near, nil
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case connection := <-l.connections:
		return connection, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { close(l.closed); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80} }

// testClient returns a client of a server that handles the nth request with handlers[n], and all later ones with the last.
func testClient(t *testing.T, handlers ...http.HandlerFunc) (c *client, requests *atomic.Int32) {
	t.Helper()
	requests = &atomic.Int32{}
	listener := &pipeListener{make(chan net.Conn), make(chan struct{})}
	server := &http.Server{ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0), Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			n := int(requests.Add(1)) - 1
			handlers[min(n, len(handlers)-1)](w, r)
		})}
	go func() { _ = server.Serve(listener) }()
	transport := newTransport()
	transport.Proxy, transport.DialContext = nil, listener.dial
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = server.Close()
	})
	c, err := newClient("http://"+listener.Addr().String(), secret.New("key"), transport)
	if err != nil {
		t.Fatal(err)
	}
	return c, requests
}

func (c *client) createGroup(ctx context.Context) (*http.Response, error) {
	return c.api.CreateIPGroup(ctx, &ironplane.CreateIPGroupParams{IdempotencyKey: new("once")}, ironplane.CreateIPGroupBody{Name: "A"})
}

func (c *client) listGroups(ctx context.Context) (*http.Response, error) {
	return c.api.ListIPGroups(ctx, nil)
}

func respond(status int, retryAfter, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

func TestCreateObeysRetryAfter(t *testing.T) {
	t.Parallel()
	var keys, bodies []string
	recorded := func(next http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			keys, bodies = append(keys, r.Header.Get("Idempotency-Key")), append(bodies, string(body))
			next(w, r)
		}
	}
	c, _ := testClient(t,
		recorded(respond(429, "0", `{"title":"Too Many Requests"}`)),
		recorded(respond(503, time.Now().Add(-time.Minute).UTC().Format(http.TimeFormat), "<html>")),
		recorded(respond(200, "", `{"id":7}`)))
	var created ironplane.IPGroup
	if err := c.create(t.Context(), c.createGroup, &created); err != nil || created.ID != 7 {
		t.Fatalf("got %v, %v, want group 7", created, err)
	}
	expect(t, "idempotency keys", keys, []string{"once", "once", "once"})
	expect(t, "bodies", bodies, []string{bodies[0], bodies[0], bodies[0]})
}

func TestCreateLimitsRetries(t *testing.T) {
	t.Parallel()
	c, requests := testClient(t, respond(429, "0", ""))
	err := c.create(t.Context(), c.createGroup, &ironplane.IPGroup{})
	if err == nil || errors.Is(err, errUnknownOutcome) || requests.Load() != int32(c.maxRetries)+1 {
		t.Errorf("got %v after %d requests, want a known outcome after %d", err, requests.Load(), c.maxRetries+1)
	}

	c, requests = testClient(t, respond(503, "3600", ""))
	if err := c.create(t.Context(), c.createGroup, &ironplane.IPGroup{}); err == nil || requests.Load() != 1 {
		t.Errorf("got %v after %d requests, want an error after 1", err, requests.Load())
	}

	ctx, cancel := context.WithCancel(t.Context())
	c, _ = testClient(t, func(w http.ResponseWriter, r *http.Request) {
		respond(503, "30", "")(w, r)
		cancel()
	})
	if err := c.create(ctx, c.createGroup, &ironplane.IPGroup{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

func TestCreateReportsUnknownOutcomes(t *testing.T) {
	t.Parallel()
	hang := func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // the server notices that the client has left only after it has read the body
		<-r.Context().Done()
	}
	for name, test := range map[string]struct {
		respond http.HandlerFunc
		unknown bool
	}{
		"no response":         {hang, true},
		"a closed connection": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, true},
		"half a response":     {respond(200, "", `{"id":`), true},
		"a proxy's 502":       {respond(502, "", "<html>"), true},
		"a server error":      {respond(500, "", `{"title":"Internal Server Error"}`), true},
		"no key":              {respond(401, "", `{"title":"Unauthorized"}`), false},
		"invalid":             {respond(422, "", `{"title":"Unprocessable Entity"}`), false},
		"too many requests":   {respond(429, "0", ""), false},
		"elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, requests := testClient(t, test.respond)
				c.maxRetries = 0
				began := time.Now()
				err := c.create(t.Context(), c.createGroup, &ironplane.IPGroup{})
				if err == nil || errors.Is(err, errUnknownOutcome) != test.unknown {
					t.Errorf("got %v, want an error with unknown outcome = %t", err, test.unknown)
				}
				if elapsed := time.Since(began); elapsed > c.idleTimeout {
					t.Errorf("got the error after %v, want it after %v", elapsed, c.idleTimeout)
				}
				if n := requests.Load(); n != 1 {
					t.Errorf("got %d requests, want 1", n)
				}
			})
		})
	}

	t.Run("no server", func(t *testing.T) {
		t.Parallel()
		server := httptest.NewServer(nil)
		server.Close()
		c, err := newClient(server.URL, secret.New("key"), newTransport())
		if err != nil {
			t.Fatal(err)
		}
		if err := c.create(t.Context(), c.createGroup, &ironplane.IPGroup{}); err == nil || errors.Is(err, errUnknownOutcome) {
			t.Errorf("got %v, want an error with a known outcome", err)
		}
	})
}

func TestListIsCompleteOrFails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		respond http.HandlerFunc
		items   int
		err     string
	}{
		"whole":  {respond(200, "", `[{"id":1},{"id":2}]`), 2, ""},
		"empty":  {respond(200, "", `[]`), 0, ""},
		"object": {respond(200, "", `{"id":1}`), 0, "not an array"},
		"short":  {respond(200, "", `[{"id":1}`), 1, "EOF"},
		"cut": {func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `[{"id":1},`)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, 1, "EOF"},
		"stalled": {func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, `[{"id":1},`)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, 1, "sent nothing for"},
		"slow, but moving": {func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `[{"id":0}`)
			for n := range 8 {
				time.Sleep(10 * time.Second)
				fmt.Fprintf(w, `,{"id":%d}`, n+1)
				w.(http.Flusher).Flush()
			}
			io.WriteString(w, `]`)
		}, 9, ""},
		"refused": {respond(403, "", `{"detail":"network.groups read"}`), 0, "403 Forbidden: network.groups read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, _ := testClient(t, test.respond)
				items := 0
				err := list(t.Context(), c, c.listGroups, func(ironplane.IPGroup) { items++ })
				if (err == nil) != (test.err == "") || (err != nil && !strings.Contains(err.Error(), test.err)) {
					t.Errorf("got %v, want %q", err, test.err)
				}
				if items != test.items {
					t.Errorf("got %d items, want %d", items, test.items)
				}
			})
		})
	}
}

func TestListObeysRetryAfter(t *testing.T) {
	t.Parallel()
	c, _ := testClient(t, respond(503, "0", ""), respond(200, "", `[{"id":1}]`))
	items := 0
	if err := list(t.Context(), c, c.listGroups, func(ironplane.IPGroup) { items++ }); err != nil || items != 1 {
		t.Errorf("got %d items, %v, want 1", items, err)
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"0": 0, "7": 7 * time.Second,
		"Fri, 20 Nov 2026 12:00:30 GMT": 30 * time.Second,
		"Fri, 20 Nov 2026 11:00:00 GMT": 0,
		"":                              2 * time.Second, "soon": 2 * time.Second, "-1": 2 * time.Second, "99999999999999999999": 2 * time.Second,
	} {
		if got := retryAfter(header, now); got != want {
			t.Errorf("%q: got %s, want %s", header, got, want)
		}
	}
}

func TestClientAcceptsOnlyPlainURLs(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"", "127.0.0.1:8080", "ftp://a", "http://", "http://me:secret@a", "http://a?key=b", "http://a b"} {
		if _, err := newClient(base, secret.New("key"), newTransport()); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: got %v, want an error without the password", base, err)
		}
	}
}
