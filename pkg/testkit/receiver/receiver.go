// Package receiver is what webhooks of tests and measurements lead to. It believes nothing that the library of Standard
// Webhooks does not verify.
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
	Left     <-chan struct{} // closed when the sender does not wait for the answer any more
}

// Event is what a receiver reads of a body.
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

// Event is the body.
func (r *Received) Event(t testing.TB) (e Event) {
	t.Helper()
	if err := json.Unmarshal(r.Body, &e); err != nil {
		t.Errorf("%s: %v", r.Body, err)
	}
	return e
}

// Server is a receiver.
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

// Start starts one, until the test ends. answer answers with a status what came as the nth, nil: with 204.
func Start(t testing.TB, answer func(n int, r *Received, w http.ResponseWriter) int) *Server {
	t.Helper()
	s := &Server{t: t, answer: answer}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// Forget has it count what comes, and not keep it.
func (s *Server) Forget() { s.forget = true }

// Trust has it believe what is signed with each of these secrets.
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
		return // it was cut off
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

// All is what came, in the order in which it was answered.
func (s *Server) All() []Received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Received(nil), s.all...)
}

// Accepted is how much of it was taken.
func (s *Server) Accepted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}
