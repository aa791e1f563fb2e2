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
	// askTimeout bounds a request with its response.
	askTimeout = 30 * time.Second
	// maxResponse bounds a response, in bytes. The largest are a service's API document and a page of its changes.
	maxResponse = 8 << 20
)

// Peers are the services of an installation as one process reaches them.
type Peers struct {
	// ClientConfig returns the TLS configuration for a service in another process. It may be nil if all services are in this
	// process.
	ClientConfig func(service string) *tls.Config
	// MinTimeout is the shortest timeout of a request. Tests set it, so that none fails because the machine is busy.
	MinTimeout time.Duration
	// Unreachable is called, if it is set, with a service whose instance could not be asked, or that has no known instance.
	Unreachable func(service string)

	self   string
	local  map[string]http.Handler // services in this process
	mu     sync.Mutex
	remote map[string]*peer
}

// New returns the Peers of the process named self, with the services that run in this process by name.
func New(self string, local map[string]http.Handler) *Peers {
	return &Peers{self: self, local: local, remote: map[string]*peer{}}
}

// SetInstances sets the addresses of a service's instances.
func (p *Peers) SetInstances(service string, addresses []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.remote[service] == nil {
		p.remote[service] = newPeer(service, p.Limit, func() *tls.Config { return p.ClientConfig(service) })
	}
	p.remote[service].setInstances(addresses)
}

// Ask gets an internal path of a service and decodes the response. The error is mesh.ErrUnavailable if the service cannot be
// reached or answers with a server error.
func (p *Peers) Ask(ctx context.Context, service, path string, into any) error {
	ctx, cancel := p.Limit(ctx, askTimeout)
	defer cancel()
	ctx = principal.NewContext(ctx, &principal.Call{Peer: p.self, RequestID: principal.FromContext(ctx).RequestID})
	status, body, err := p.get(ctx, service, path)
	switch {
	case err != nil:
		return fmt.Errorf("ask %s: %w", service, err)
	case status >= http.StatusInternalServerError:
		return fmt.Errorf("ask %s: got status %d: %w", service, status, mesh.ErrUnavailable)
	case status != http.StatusOK:
		return fmt.Errorf("ask %s: got status %d", service, status)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("ask %s: decode the response: %w", service, err)
	}
	return nil
}

// Limit bounds requests with this context by timeout or MinTimeout, whichever is longer.
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
		return 0, nil, errors.New("the service is unknown: name it in IRONPLANE_SERVICES")
	}
	return s.get(ctx, path, p.reportUnreachable)
}

func (p *Peers) reportUnreachable(service string) {
	if p.Unreachable != nil {
		p.Unreachable(service)
	}
}

// askLocal asks a service of this process.
func askLocal(ctx context.Context, handler http.Handler, path string) (status int, body []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	a := &localResponse{header: http.Header{}, status: http.StatusOK}
	defer func() {
		if aborted := recover(); aborted != nil { // there is no net/http server that would recover
			err = fmt.Errorf("the handler aborted (%v): %w", aborted, mesh.ErrUnavailable)
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

var errTooLong = errors.New("the response is too large")

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
		return nil, fmt.Errorf("read the response: %w", err)
	case len(body) > maxResponse:
		return nil, errTooLong
	}
	return body, nil
}
