package mesh

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/ironplane/ironplane/pkg/principal"
)

// Peers are the services as another process of the installation reaches them, to ask for what they tell each other.
type Peers struct {
	self     string
	services map[string]http.Handler
}

// NewPeers are the services by their names, as the process of the name self reaches them: each an Upstream or, in one
// process, the service's own handler.
func NewPeers(self string, services map[string]http.Handler) *Peers { return &Peers{self, services} }

// ErrAway says that a service could not be asked.
var ErrAway = errors.New("it is away")

// Ask gets an internal path of a service and decodes the answer. The error is ErrAway where the service cannot be
// reached or cannot tell.
func (p *Peers) Ask(ctx context.Context, service, path string, into any) (err error) {
	handler, ok := p.services[service]
	if !ok {
		return fmt.Errorf("ask %s: there is no such service", service)
	}
	ctx = principal.With(ctx, &principal.Call{Peer: p.self, RequestID: principal.From(ctx).RequestID})
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody)
	if err != nil {
		return fmt.Errorf("ask %s: %w", service, err)
	}
	answer := &answer{header: http.Header{}, status: http.StatusOK}
	defer func() {
		if gaveUp := recover(); gaveUp != nil { // the ways of a handler to abort an answer; nobody else is there to recover
			err = fmt.Errorf("ask %s: it gave up (%v): %w", service, gaveUp, ErrAway)
		}
	}()
	handler.ServeHTTP(answer, r)
	if answer.status >= http.StatusInternalServerError {
		return fmt.Errorf("ask %s: it answered %d: %w", service, answer.status, ErrAway)
	}
	if answer.status != http.StatusOK {
		return fmt.Errorf("ask %s: it answered %d", service, answer.status)
	}
	if err := json.Unmarshal(answer.body.Bytes(), into); err != nil {
		return fmt.Errorf("ask %s: decode the answer: %w", service, err)
	}
	return nil
}

// answer is the response to a question of our own.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// longestAnswer is in bytes. The longest is the API document of a service, or a page of its changes.
const longestAnswer = 8 << 20

var errTooLong = errors.New("the answer is too long")

func (a *answer) Header() http.Header    { return a.header }
func (a *answer) WriteHeader(status int) { a.status = status }

func (a *answer) Write(p []byte) (int, error) {
	if a.body.Len()+len(p) > longestAnswer {
		return 0, errTooLong
	}
	return a.body.Write(p)
}
