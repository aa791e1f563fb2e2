package peers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/pkg/runtime/tracing"
)

const (
	// dialTimeout bounds the connection together with the TLS handshake.
	dialTimeout = 3 * time.Second
	// maxConnections bounds the connections to one instance, and maxIdleConnections those kept for later requests.
	maxConnections, maxIdleConnections = 64, 8
	// idleTimeout is how long an idle connection is kept. It is shorter than a service's, so that this end closes first.
	idleTimeout = 90 * time.Second
	// connectionTTL is when connections are replaced, so that certificates are verified again.
	connectionTTL = 10 * time.Minute
	// failureTTL is how long an instance that failed is asked only after the others.
	failureTTL = 5 * time.Second
)

// peer is a service in other processes. Requests are only GETs, so a request that fails at one instance can be repeated at
// another.
type peer struct {
	service   string
	transport *http.Transport

	mu        sync.Mutex
	instances []string
	turn      int
	failed    map[string]time.Time // when an instance last failed
	renewed   time.Time            // when connections were last replaced
}

// limit returns a context with a timeout, as Peers.Limit does.
type limit = func(context.Context, time.Duration) (context.Context, context.CancelFunc)

// newPeer returns a peer without instances. config returns the present TLS configuration.
func newPeer(service string, limit limit, config func() *tls.Config) *peer {
	return &peer{service: service, failed: map[string]time.Time{}, renewed: time.Now(), transport: &http.Transport{
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := limit(ctx, dialTimeout)
			defer cancel()
			return (&tls.Dialer{Config: config()}).DialContext(ctx, network, address)
		},
		MaxConnsPerHost: maxConnections, MaxIdleConnsPerHost: maxIdleConnections, IdleConnTimeout: idleTimeout, DisableCompression: true,
	}}
}

// setInstances replaces the addresses, and forgets past failures and idle connections.
func (s *peer) setInstances(addresses []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.instances = addresses
	clear(s.failed)
	s.transport.CloseIdleConnections()
}

// get asks one instance and, if that fails, the next. It reports the service if an instance fails, or if none is known.
func (s *peer) get(ctx context.Context, path string, reportUnreachable func(service string)) (status int, body []byte, err error) {
	err = errors.New("no instance is known")
	instances := s.order()
	if len(instances) == 0 {
		reportUnreachable(s.service)
	}
	for _, address := range instances {
		if status, body, err = s.ask(ctx, address, path); err == nil || errors.Is(err, errTooLong) {
			return status, body, err
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			return 0, nil, err
		}
		s.mu.Lock()
		s.failed[address] = time.Now()
		s.mu.Unlock()
		reportUnreachable(s.service)
		if ctx.Err() != nil {
			break
		}
	}
	return 0, nil, fmt.Errorf("%w: %w", err, mesh.ErrUnavailable)
}

// order returns the instances in turn, with those that failed within failureTTL last.
func (s *peer) order() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.renewed) > connectionTTL {
		s.renewed = time.Now()
		s.transport.CloseIdleConnections()
	}
	var healthy, failing []string
	for _, address := range s.instances {
		if time.Since(s.failed[address]) < failureTTL {
			failing = append(failing, address)
		} else {
			healthy = append(healthy, address)
		}
	}
	if s.turn++; len(healthy) > 0 {
		first := s.turn % len(healthy)
		healthy = append(slices.Clone(healthy[first:]), healthy[:first]...)
	}
	return append(healthy, failing...)
}

// ask sends a request to one instance. Only the gateway forwards its caller.
func (s *peer) ask(ctx context.Context, address, path string) (status int, body []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+path, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	r, asked := tracing.Ask(r, s.service)
	defer asked()
	r.Host = s.service
	tracing.Inject(r.Context(), r.Header.Set)
	if call := principal.FromContext(ctx); call.Peer == principal.Gateway { // services refuse it from others
		r.Header[CallHeader] = []string{string(AppendCall(nil, call))}
	} else if call.RequestID != "" {
		r.Header[RequestHeader] = []string{call.RequestID}
	}
	response, err := s.transport.RoundTrip(r)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = readResponse(response.Body)
	return response.StatusCode, body, err
}
