package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
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
func testClient(t *testing.T, handlers []http.HandlerFunc, options ...Option) (c *Client, requests *atomic.Int32) {
	t.Helper()
	requests = &atomic.Int32{}
	listener := &pipeListener{make(chan net.Conn), make(chan struct{})}
	server := &http.Server{ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0), Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			n := int(requests.Add(1)) - 1
			handlers[min(n, len(handlers)-1)](w, r)
		})}
	go func() { _ = server.Serve(listener) }()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy, transport.DialContext = nil, listener.dial
	transport.DisableKeepAlives = true // otherwise the transport sends some requests again by itself
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = server.Close()
	})
	c, err := New("http://"+listener.Addr().String(), append([]Option{WithKey("key"), WithTransport(transport)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c, requests
}

func answers(all ...http.HandlerFunc) []http.HandlerFunc { return all }

func respond(status int, retryAfter, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

func cut(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func hang(_ http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body) // the server notices that the client has left only after it has read the body
	<-r.Context().Done()
}

// TestRetriesKeepTheirKey loses answers of a POST. Each attempt has the same body and the same Idempotency-Key, and another call
// has another key.
func TestRetriesKeepTheirKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var keys, bodies []string
		recorded := func(next http.HandlerFunc) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				keys, bodies = append(keys, r.Header.Get("Idempotency-Key")), append(bodies, string(body))
				next(w, r)
			}
		}
		c, _ := testClient(t, answers(
			recorded(respond(429, "0", `{"title":"Too Many Requests"}`)),
			recorded(respond(503, time.Now().Add(-time.Minute).UTC().Format(http.TimeFormat), "<html>")),
			recorded(cut),
			recorded(respond(200, "", `{"id":`)),
			recorded(respond(200, "", `{"id":7}`))))
		created, err := c.Groups.Create(t.Context(), GroupCreate{Name: "A"})
		if err != nil || created.ID != 7 {
			t.Fatalf("got %v, %v, want group 7", created, err)
		}
		if _, err := c.Groups.Create(t.Context(), GroupCreate{Name: "B"}, IdempotencyKey("mine")); err != nil {
			t.Fatal(err)
		}
		if len(keys) != 6 || len(keys[0]) < 20 || strings.Count(strings.Join(keys, " "), keys[0]) != 5 || keys[5] != "mine" {
			t.Errorf("got the keys %q, want one random key five times, and mine", keys)
		}
		if strings.Count(strings.Join(bodies, " "), `{"name":"A"}`) != 5 {
			t.Errorf("got the bodies %q, want the same body five times", bodies)
		}
	})
}

func TestRetriesHaveBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, requests := testClient(t, answers(respond(429, "7", "")), WithRetries(3))
		began := time.Now()
		_, err := c.Groups.Create(t.Context(), GroupCreate{Name: "A"})
		if !errors.Is(err, ErrRateLimited) || errors.Is(err, ErrUnknownOutcome) || requests.Load() != 4 || time.Since(began) != 21*time.Second {
			t.Errorf("got %v after %d requests and %s, want a refusal after 4 and 21 s", err, requests.Load(), time.Since(began))
		}

		c, requests = testClient(t, answers(respond(503, "3600", "")))
		if _, err := c.Groups.Create(t.Context(), GroupCreate{Name: "A"}); !errors.Is(err, ErrUnavailable) || requests.Load() != 1 {
			t.Errorf("got %v after %d requests, want an error after 1", err, requests.Load())
		}

		ctx, cancel := context.WithCancel(t.Context())
		c, _ = testClient(t, answers(func(w http.ResponseWriter, r *http.Request) {
			respond(503, "30", "")(w, r)
			cancel()
		}))
		if _, err := c.Groups.Create(ctx, GroupCreate{Name: "A"}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
	})
}

// TestOnlySafeRequestsAreRepeated loses the answers of operations. A second DELETE would report that nothing is there.
func TestOnlySafeRequestsAreRepeated(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		call     func(context.Context, *Client) error
		requests int32
	}{
		"a GET":  {func(ctx context.Context, c *Client) error { _, err := c.Groups.Get(ctx, 1); return err }, 3},
		"a POST": {func(ctx context.Context, c *Client) error { _, err := c.Jobs.Retry(ctx, "system:1"); return err }, 3},
		"a PATCH": {func(ctx context.Context, c *Client) error {
			_, err := c.Groups.Update(ctx, 1, GroupUpdate{})
			return err
		}, 3},
		"a DELETE": {func(ctx context.Context, c *Client) error { return c.Groups.Delete(ctx, 1) }, 1},
		"a POST without a key": {func(ctx context.Context, c *Client) error {
			_, err := c.PasswordResets.Request(ctx, PasswordResetRequest{})
			return err
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, requests := testClient(t, answers(respond(502, "", "<html>"), cut), WithRetries(2))
				if err := test.call(t.Context(), c); !errors.Is(err, ErrUnknownOutcome) || requests.Load() != test.requests {
					t.Errorf("got %v after %d requests, want an unknown outcome after %d", err, requests.Load(), test.requests)
				}
			})
		})
	}
}

func TestUnknownOutcomes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		respond http.HandlerFunc
		unknown bool
	}{
		"no response":         {hang, true},
		"a closed connection": {cut, true},
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
				c, requests := testClient(t, answers(test.respond), WithRetries(0))
				began := time.Now()
				_, err := c.Groups.Create(t.Context(), GroupCreate{Name: "A"})
				if err == nil || errors.Is(err, ErrUnknownOutcome) != test.unknown {
					t.Errorf("got %v, want an error with unknown outcome = %t", err, test.unknown)
				}
				if elapsed := time.Since(began); elapsed > c.idleTimeout || requests.Load() != 1 {
					t.Errorf("got the error after %v and %d requests, want it after %v and 1", elapsed, requests.Load(), c.idleTimeout)
				}
			})
		})
	}

	t.Run("no server", func(t *testing.T) {
		t.Parallel()
		server := httptest.NewServer(nil)
		server.Close()
		c, err := New(server.URL, WithRetries(0))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Groups.Create(t.Context(), GroupCreate{Name: "A"}); !errors.Is(err, ErrUnreachable) || errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("got %v, want an error with a known outcome", err)
		}
	})
}

func TestListIsCompleteOrFails(t *testing.T) {
	t.Parallel()
	page := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Total-Count", "3")
		if r.URL.Query().Get("cursor") == "" {
			w.Header().Set("Link", `<https://elsewhere/group?per_page=2>; rel="first", <https://elsewhere/group?cursor=b&per_page=2>; rel="next"`)
			io.WriteString(w, `[{"id":1},{"id":2}]`)
			return
		}
		io.WriteString(w, `[{"id":3}]`)
	}
	slow := func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `[{"id":0}`)
		for n := range 8 {
			time.Sleep(20 * time.Second)
			fmt.Fprintf(w, `,{"id":%d}`, n+1)
			w.(http.Flusher).Flush()
		}
		io.WriteString(w, `]`)
	}
	stalled := func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `[{"id":1},`)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	for name, test := range map[string]struct {
		handlers []http.HandlerFunc
		items    int
		err      string
	}{
		"whole":            {answers(respond(200, "", `[{"id":1},{"id":2}]`)), 2, ""},
		"empty":            {answers(respond(200, "", `[]`)), 0, ""},
		"two pages":        {answers(page), 3, ""},
		"a lost page":      {answers(page, cut, page), 3, ""},
		"refused later":    {answers(page, respond(403, "", `{"detail":"no"}`)), 2, "403 Forbidden: no"},
		"object":           {answers(respond(200, "", `{"id":1}`)), 0, "cannot unmarshal object"},
		"short":            {answers(respond(200, "", `[{"id":1}`)), 0, "EOF"},
		"stalled":          {answers(stalled), 0, "sent nothing for"},
		"slow, but moving": {answers(slow), 9, ""},
		"asked to wait":    {answers(respond(503, "9", ""), respond(200, "", `[{"id":1}]`)), 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, _ := testClient(t, test.handlers)
				items, err := 0, error(nil)
				for _, err = range c.Groups.List(t.Context(), GroupList{}) {
					if err == nil {
						items++
					}
				}
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

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"0": 0, "7": 7 * time.Second,
		"Fri, 20 Nov 2026 12:00:30 GMT": 30 * time.Second,
		"Fri, 20 Nov 2026 11:00:00 GMT": 0,
		"":                              -1, "soon": -1, "-1": -1, "99999999999999999999": -1,
	} {
		if got := parseRetryAfter(header, now); got != want {
			t.Errorf("%q: got %s, want %s", header, got, want)
		}
	}
}

// TestHook is calls of one call with two attempts, and sends a header.
func TestHook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls, sent []string
		hook := func(ctx context.Context, r *Request) (context.Context, func(Result)) {
			r.Header.Set("Traceparent", "00-1-2-01")
			calls = append(calls, r.Operation+" "+r.Method+" "+r.Route)
			return ctx, func(result Result) {
				calls = append(calls, fmt.Sprint(result.Status, " ", result.RequestID, " ", result.Attempts, " ", errors.Is(result.Err, ErrNotFound)))
			}
		}
		refuse := func(w http.ResponseWriter, r *http.Request) {
			sent = append(sent, r.Header.Get("Traceparent"))
			w.Header().Set("X-Request-Id", "R1")
			respond(404, "", `{"detail":"no"}`)(w, r)
		}
		c, _ := testClient(t, answers(respond(503, "1", ""), refuse), WithHook(hook))
		_, err := c.Entities.Get(t.Context(), 7)
		if e, ok := errors.AsType[*Error](err); !ok || e.RequestID != "R1" || e.Operation != "getIPEntity" {
			t.Errorf("got %v, want the error of request R1", err)
		}
		if want := []string{
			"getIPEntity GET /entity/{entity_id}",
			"404 R1 2 true",
		}; !slices.Equal(calls, want) ||
			!slices.Equal(sent, []string{"00-1-2-01"}) {
			t.Errorf("got %q and the header %q, want %q", calls, sent, want)
		}
	})
}

func TestClientAcceptsOnlyPlainURLs(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"", "127.0.0.1:8080", "ftp://a", "http://", "http://me:secret@a", "http://a?key=b", "http://me:secret@a b"} {
		if _, err := New(base); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: got %v, want an error without the password", base, err)
		}
	}
}
