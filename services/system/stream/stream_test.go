package stream

import (
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit/syncbuf"
)

// response is a response that can be read while it is written.
type response struct {
	*httptest.ResponseRecorder
	body syncbuf.Buffer
}

func (r *response) Write(text []byte) (int, error) { return r.body.Write(text) }

// An idle stream says something every 15 s, and a page at once.
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sent := response{ResponseRecorder: httptest.NewRecorder()}
		r := &reader{pages: make(chan []event, 1), ended: make(chan struct{})}
		groups := principal.Grant(permission.NetworkGroups, permission.Read)
		done := make(chan error)
		go func() { done <- r.follow(t.Context(), newWriter(&sent, groups)) }()
		want := func(text string) {
			t.Helper()
			synctest.Wait()
			if got := sent.body.String(); got != text {
				t.Errorf("got %q, want %q", got, text)
			}
		}
		time.Sleep(heartbeatInterval - time.Second)
		want("")
		time.Sleep(2 * time.Second)
		want(":\n\n")
		r.pages <- []event{{id: 1, text: []byte("a\n\n"), needed: groups}, {id: 2, text: []byte("b\n\n"), needed: principal.All}}
		want(":\n\na\n\n")
		close(r.ended)
		if err := <-done; err != nil {
			t.Errorf("got %v, want the end", err)
		}
	})
}

// A caller that reads too slowly is ended, and costs the others nothing.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	h := New(nil)
	h.isOpen = true
	slow, err := h.join(1)
	if err != nil {
		t.Fatal(err)
	}
	quick, err := h.join(2)
	if err != nil {
		t.Fatal(err)
	}
	h.begin(1)
	for i := range int64(maxPages + 1) {
		h.broadcast(i+1, []event{{id: i + 2}})
		<-quick.pages
	}
	select {
	case <-slow.ended:
	default:
		t.Error("got a slow reader that goes on, want it ended")
	}
	select {
	case <-quick.ended:
		t.Error("got the end of the other reader, want it to go on")
	default:
	}
}

// There are at most maxReaders streams, one for each key, and none before the hub runs.
func TestBounds(t *testing.T) {
	t.Parallel()
	h := New(nil)
	if _, err := h.join(1); !problem.Is(err, problem.Unavailable) {
		t.Errorf("got %v before the hub runs, want a 503", err)
	}
	h.isOpen = true
	for key := range int64(maxReaders) {
		if _, err := h.join(key + 1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.join(maxReaders + 1); !problem.Is(err, problem.Unavailable) {
		t.Errorf("got %v beyond the bound, want a 503", err)
	}
	if _, err := h.join(1); err != nil {
		t.Errorf("got %v for a key that has a stream, want it replaced", err)
	}
}
