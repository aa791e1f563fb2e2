// Package receiver has a receiver of webhooks for tests and measurements. It verifies events with the library of Standard
// Webhooks.
package receiver

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Received is an attempt to deliver an event.
type Received struct {
	ID       string // webhook-id
	Body     []byte
	Header   http.Header
	Accepted bool
	Left     <-chan struct{} // closed when the sender stops waiting
}

// Event is the part of a body that tests read.
type Event struct {
	Type string
	Data struct {
		Targets []struct {
			ID  int64
			URL string
		}
		Before, After map[string]any
		User          *struct{ URL string }
		RequestID     string `json:"request_id"`
	}
}

// Event decodes the body.
func (r *Received) Event(t testing.TB) (e Event) {
	t.Helper()
	if err := json.Unmarshal(r.Body, &e); err != nil {
		t.Errorf("%s: %v", r.Body, err)
	}
	return e
}

// Server receives webhooks.
type Server struct {
	URL string

	t      testing.TB
	forget bool
	answer func(n int, r *Received, w http.ResponseWriter) int

	mu       sync.Mutex
	secrets  []string
	all      []Received
	requests int
	accepted int
}

// Start starts a receiver until the test ends. answer returns the status for the nth request. nil: 204.
func Start(t testing.TB, answer func(n int, r *Received, w http.ResponseWriter) int) *Server {
	t.Helper()
	s := &Server{t: t, answer: answer}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// Forget makes the receiver count requests without storing them.
func (s *Server) Forget() { s.forget = true }

// Trust sets the secrets. Each request must be signed with all of them.
func (s *Server) Trust(secrets ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secrets = secrets
}

func (s *Server) verify(r *Received) {
	s.mu.Lock()
	secrets := s.secrets
	s.mu.Unlock()
	for _, secret := range secrets {
		hook, err := standardwebhooks.NewWebhook(secret)
		if err == nil {
			err = hook.Verify(r.Body, r.Header)
		}
		if err != nil {
			s.t.Errorf("%s does not verify: %v", r.ID, err)
		}
	}
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the connection was cut off
	}
	got := Received{ID: r.Header.Get(standardwebhooks.HeaderWebhookID), Body: body, Header: r.Header, Left: r.Context().Done()}
	s.verify(&got)
	s.mu.Lock()
	s.requests++
	n := s.requests
	s.mu.Unlock()
	status := http.StatusNoContent
	if s.answer != nil {
		status = s.answer(n, &got, w)
	}
	got.Accepted = status/100 == 2
	s.mu.Lock()
	if got.Accepted {
		s.accepted++
	}
	if !s.forget {
		s.all = append(s.all, got)
	}
	s.mu.Unlock()
	w.WriteHeader(status)
}

// All returns the stored requests in the order of their responses.
func (s *Server) All() []Received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Received(nil), s.all...)
}

// Accepted returns the number of requests with a 2xx response.
func (s *Server) Accepted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}
