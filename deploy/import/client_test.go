package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ironplane "github.com/ironplane/ironplane/pkg/client"
	"github.com/ironplane/ironplane/pkg/secret"
)

// silence is longer than a server of these tests takes that does answer, on a machine that does much else, too.
const silence = 3 * time.Second

// testClient speaks to a server that answers the nth request with answers[n], and the last of them from then on.
func testClient(t *testing.T, answers ...http.HandlerFunc) (c *client, requests *atomic.Int32) {
	t.Helper()
	requests = &atomic.Int32{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(requests.Add(1)) - 1
		answers[min(n, len(answers)-1)](w, r)
	}))
	t.Cleanup(server.Close)
	c, err := newClient(server.URL, secret.New("key"))
	if err != nil {
		t.Fatal(err)
	}
	return c, requests
}

func (c *client) makeGroup(ctx context.Context) (*http.Response, error) {
	return c.api.CreateIPGroup(ctx, &ironplane.CreateIPGroupParams{IdempotencyKey: new("once")}, ironplane.CreateIPGroupBody{Name: "A"})
}

func (c *client) listGroups(ctx context.Context) (*http.Response, error) {
	return c.api.ListIPGroups(ctx, nil)
}

func answer(status int, retryAfter, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

func TestCreateRepeatsWhatIsPutOff(t *testing.T) {
	t.Parallel()
	var keys, bodies []string
	note := func(next http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			keys, bodies = append(keys, r.Header.Get("Idempotency-Key")), append(bodies, string(body))
			next(w, r)
		}
	}
	c, _ := testClient(t,
		note(answer(429, "0", `{"title":"Too Many Requests"}`)),
		note(answer(503, time.Now().Add(-time.Minute).UTC().Format(http.TimeFormat), "<html>")),
		note(answer(200, "", `{"id":7}`)))
	var made ironplane.IPGroup
	if err := c.create(t.Context(), c.makeGroup, &made); err != nil || made.ID != 7 {
		t.Fatalf("got %v, %v, want group 7", made, err)
	}
	expect(t, "idempotency keys", keys, []string{"once", "once", "once"})
	expect(t, "bodies", bodies, []string{bodies[0], bodies[0], bodies[0]})
}

func TestCreateIsPatientWithinBounds(t *testing.T) {
	t.Parallel()
	c, requests := testClient(t, answer(429, "0", ""))
	err := c.create(t.Context(), c.makeGroup, &ironplane.IPGroup{})
	if err == nil || errors.Is(err, errUnclear) || requests.Load() != int32(c.waits)+1 {
		t.Errorf("got %v after %d requests, want a clear error after %d", err, requests.Load(), c.waits+1)
	}

	c, requests = testClient(t, answer(503, "3600", ""))
	if err := c.create(t.Context(), c.makeGroup, &ironplane.IPGroup{}); err == nil || requests.Load() != 1 {
		t.Errorf("got %v after %d requests, want an error after 1", err, requests.Load())
	}

	ctx, cancel := context.WithCancel(t.Context())
	c, _ = testClient(t, func(w http.ResponseWriter, r *http.Request) {
		answer(503, "30", "")(w, r)
		cancel()
	})
	if err := c.create(ctx, c.makeGroup, &ironplane.IPGroup{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

func TestCreateTellsWhetherItIsClear(t *testing.T) {
	t.Parallel()
	hang := func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // only then does the server notice that the client is gone
		<-r.Context().Done()
	}
	for name, test := range map[string]struct {
		answer  http.HandlerFunc
		unclear bool
	}{
		"no answer":      {hang, true},
		"a cut":          {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, true},
		"half an answer": {answer(200, "", `{"id":`), true},
		"a proxy's 502":  {answer(502, "", "<html>"), true},
		"a fault":        {answer(500, "", `{"title":"Internal Server Error"}`), true},
		"no key":         {answer(401, "", `{"title":"Unauthorized"}`), false},
		"invalid":        {answer(422, "", `{"title":"Unprocessable Entity"}`), false},
		"put off":        {answer(429, "0", ""), false},
		"elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, requests := testClient(t, test.answer)
			c.silence, c.waits = silence, 0
			err := c.create(t.Context(), c.makeGroup, &ironplane.IPGroup{})
			if err == nil || errors.Is(err, errUnclear) != test.unclear {
				t.Errorf("got %v, want an error with unclear = %t", err, test.unclear)
			}
			if n := requests.Load(); n != 1 {
				t.Errorf("got %d requests, want 1", n)
			}
		})
	}

	t.Run("nobody there", func(t *testing.T) {
		t.Parallel()
		server := httptest.NewServer(nil)
		server.Close()
		c, err := newClient(server.URL, secret.New("key"))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.create(t.Context(), c.makeGroup, &ironplane.IPGroup{}); err == nil || errors.Is(err, errUnclear) {
			t.Errorf("got %v, want a clear error", err)
		}
	})
}

func TestListIsWholeOrAnError(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		items  int
		err    string
	}{
		"whole":  {answer(200, "", `[{"id":1},{"id":2}]`), 2, ""},
		"empty":  {answer(200, "", `[]`), 0, ""},
		"object": {answer(200, "", `{"id":1}`), 0, "not an array"},
		"short":  {answer(200, "", `[{"id":1}`), 1, "EOF"},
		"cut": {func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `[{"id":1},`)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, 1, "EOF"},
		"stalled": {func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, `[{"id":1},`)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, 1, "nothing came for"},
		"slow, but moving": {func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `[{"id":0}`)
			for n := range 8 {
				time.Sleep(silence / 6)
				fmt.Fprintf(w, `,{"id":%d}`, n+1)
				w.(http.Flusher).Flush()
			}
			io.WriteString(w, `]`)
		}, 9, ""},
		"refused": {answer(403, "", `{"detail":"network.groups read"}`), 0, "403 Forbidden: network.groups read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := testClient(t, test.answer)
			c.silence = silence
			items := 0
			err := list(t.Context(), c, c.listGroups, func(ironplane.IPGroup) { items++ })
			if (err == nil) != (test.err == "") || (err != nil && !strings.Contains(err.Error(), test.err)) {
				t.Errorf("got %v, want %q", err, test.err)
			}
			if items != test.items {
				t.Errorf("got %d items, want %d", items, test.items)
			}
		})
	}
}

func TestListRepeatsWhatIsPutOff(t *testing.T) {
	t.Parallel()
	c, _ := testClient(t, answer(503, "0", ""), answer(200, "", `[{"id":1}]`))
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

func TestClientTakesOnlyPlainURLs(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"", "127.0.0.1:8080", "ftp://a", "http://", "http://me:secret@a", "http://a?key=b", "http://a b"} {
		if _, err := newClient(base, secret.New("key")); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: got %v, want an error without the password", base, err)
		}
	}
}
