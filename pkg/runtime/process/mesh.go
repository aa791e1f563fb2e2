package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/ironplane/ironplane/pkg/runtime/consul"
	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/pkg/runtime/mtls"
)

// MeshConfig is how a process and the others know and find each other.
type MeshConfig struct {
	Services Addresses `env:"IRONPLANE_SERVICES" doc:"where the services are that it asks: network=10.0.0.2:8443,10.0.0.3:8443 clients=… or, by name alone, wherever Consul says"`
	mtls.Files
	consul.Config
}

// Mesh is a process among the others.
type Mesh struct {
	Identity *mtls.Identity

	services   Addresses
	name       string
	agent      *consul.Agent // nil: all is said in the configuration
	operations *Operations
	log        *slog.Logger
	working    sync.WaitGroup
	background context.Context // for what works
	stop       context.CancelFunc
}

// Join finds out who this process is, and keeps knowing it until Close.
func (c MeshConfig) Join(ctx context.Context, name string, operations *Operations, log *slog.Logger) (*Mesh, error) {
	m := &Mesh{services: c.Services, name: name, operations: operations, log: log}
	m.background, m.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err := m.join(ctx, c); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

func (m *Mesh) join(ctx context.Context, c MeshConfig) (err error) {
	if c.Consul != "" {
		if m.agent, err = consul.Open(c.Config, m.log); err != nil {
			return err
		}
		if m.operations.address == nil {
			return errors.New("IRONPLANE_OPERATIONS_LISTEN is not set: there Consul asks whether this process is ready")
		}
		m.operations.Check(health.Check{Name: "consul", Ask: m.agent.Check, Optional: true})
	}
	return m.identify(ctx, c.Files)
}

// findTimeout is how long a process that starts waits for Consul to say where the others are.
const findTimeout = time.Minute

// Watch calls move with where each of the other services is, and again when Consul says that one has moved, until Close.
func (m *Mesh) Find(ctx context.Context, update func(service string, addresses []string)) error {
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	found := map[string]chan struct{}{}
	for service, addresses := range m.services {
		switch {
		case service == m.name: // it asks itself without a way between
		case len(addresses) > 0:
			update(service, addresses)
		case m.agent != nil:
			found[service] = m.follow(service, update)
		default:
			return fmt.Errorf("IRONPLANE_SERVICES does not say where %s is, and there is no CONSUL_URL to ask", service)
		}
	}
	for service, found := range found {
		select {
		case <-found:
		case <-ctx.Done():
			return fmt.Errorf("ask Consul where %s is: %w", service, ctx.Err())
		}
	}
	return nil
}

// follow keeps up with where a service is. The channel is closed once it knows.
func (m *Mesh) follow(service string, update func(service string, addresses []string)) chan struct{} {
	found := make(chan struct{})
	once := sync.OnceFunc(func() { close(found) })
	m.working.Go(func() {
		m.agent.Watch(m.background, service, func(addresses []string) {
			update(service, addresses)
			once()
		})
	})
	return found
}

var errNoCertificate = errors.New("neither IRONPLANE_MESH_CERTIFICATE nor CONSUL_URL is set: nobody certifies this process")

// identify gets the process's certificate, and keeps it new.
func (m *Mesh) identify(ctx context.Context, files mtls.Files) (err error) {
	switch {
	case files != mtls.Files{}:
		if m.Identity, err = mtls.Load(m.name, files); err == nil {
			m.working.Go(func() { m.Identity.Follow(m.background, files, m.log) })
		}
	case m.agent != nil:
		if m.Identity, err = m.agent.Identity(ctx, m.name); err == nil {
			m.working.Go(func() { m.agent.Renew(m.background, m.Identity, m.name) })
		}
	default:
		err = errNoCertificate
	}
	if err == nil {
		exposeCertificate(m.Identity, m.operations)
	}
	return err
}

// Close ends what keeps knowing.
func (m *Mesh) Close() {
	m.stop()
	m.working.Wait()
}

// Serve is Operations.Serve for a process that others may find.
func (m *Mesh) Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	if m.agent == nil {
		return m.operations.Serve(ctx, listener, handler, func() {})
	}
	registration, err := m.agent.Registration(m.name, listener.Addr(), m.operations.address)
	if err != nil {
		return fmt.Errorf("register: %w", err)
	}
	staying, leave := context.WithCancel(ctx)
	var registered sync.WaitGroup
	registered.Go(func() {
		registration.Keep(staying)
		registration.End()
	})
	defer registered.Wait()
	defer leave()
	return m.operations.Serve(ctx, listener, handler, registered.Wait)
}
