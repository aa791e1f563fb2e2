package peers

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
)

const (
	// askTimeout is how long a question may take, with its answer.
	askTimeout = 30 * time.Second
	// maxResponse is in bytes. The longest is the API document of a service, or a page of its changes.
	maxResponse = 8 << 20
)

// Peers are the services as another process of the installation reaches them, to ask for what they tell each other.
type Peers struct {
	// Dial is how to connect to a service that is in another process; nil: all are in this one.
	ClientConfig func(service string) *tls.Config
	// MinTimeout is how long every question may take at least. Tests set it, so that none fails because the machine is busy.
	MinTimeout time.Duration

	self   string
	local  map[string]http.Handler // in this process
	mu     sync.Mutex
	remote map[string]*peer
}

// New are services of one process, by their names, as the one of the name self reaches them.
func New(self string, local map[string]http.Handler) *Peers {
	return &Peers{self: self, local: local, remote: map[string]*peer{}}
}

// SetInstances says where the instances of a service are from now on.
func (p *Peers) SetInstances(service string, addresses []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.remote[service] == nil {
		p.remote[service] = newPeer(service, p.Limit, func() *tls.Config { return p.ClientConfig(service) })
	}
	p.remote[service].setInstances(addresses)
}

// Ask gets an internal path of a service and decodes the answer. The error is mesh.ErrUnavailable where the service cannot be
// reached or cannot tell.
func (p *Peers) Ask(ctx context.Context, service, path string, into any) error {
	ctx, cancel := p.Limit(ctx, askTimeout)
	defer cancel()
	ctx = principal.With(ctx, &principal.Call{Peer: p.self, RequestID: principal.From(ctx).RequestID})
	status, body, err := p.get(ctx, service, path)
	switch {
	case err != nil:
		return fmt.Errorf("ask %s: %w", service, err)
	case status >= http.StatusInternalServerError:
		return fmt.Errorf("ask %s: it answered %d: %w", service, status, mesh.ErrUnavailable)
	case status != http.StatusOK:
		return fmt.Errorf("ask %s: it answered %d", service, status)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("ask %s: decode the answer: %w", service, err)
	}
	return nil
}

// Limit bounds how long questions may take that are asked with the context: timeout or MinTimeout, whichever is longer.
func (p *Peers) Limit(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, max(timeout, p.MinTimeout))
}

func (p *Peers) get(ctx context.Context, service, path string) (status int, body []byte, err error) {
	if handler, ok := p.local[service]; ok {
		return askLocal(ctx, handler, path)
	}
	p.mu.Lock()
	s := p.remote[service]
	p.mu.Unlock()
	if s == nil {
		return 0, nil, errors.New("there is no such service")
	}
	return s.get(ctx, path)
}

// askLocal asks a service of this process.
func askLocal(ctx context.Context, handler http.Handler, path string) (status int, body []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	a := &localResponse{header: http.Header{}, status: http.StatusOK}
	defer func() {
		if aborted := recover(); aborted != nil { // by the handler; net/http is not there to recover
			err = fmt.Errorf("it gave up (%v): %w", aborted, mesh.ErrUnavailable)
		}
	}()
	handler.ServeHTTP(a, r)
	return a.status, a.body.Bytes(), nil
}

// localResponse is the response of a service of this process.
type localResponse struct {
	header http.Header
	status int
	body   bytes.Buffer
}

var errTooLong = errors.New("the answer is too long")

func (a *localResponse) Header() http.Header    { return a.header }
func (a *localResponse) WriteHeader(status int) { a.status = status }

func (a *localResponse) Write(p []byte) (int, error) {
	if a.body.Len()+len(p) > maxResponse {
		return 0, errTooLong
	}
	return a.body.Write(p)
}

func readResponse(from io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(from, maxResponse+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer: %w", err)
	case len(body) > maxResponse:
		return nil, errTooLong
	}
	return body, nil
}
