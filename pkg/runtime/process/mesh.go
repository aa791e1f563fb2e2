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
	"github.com/ironplane/ironplane/pkg/runtime/resolver"
)

// MeshConfig is how a process identifies itself to other processes and finds them.
type MeshConfig struct {
	Services Addresses `env:"IRONPLANE_SERVICES" doc:"the addresses of the services that it asks: network=10.0.0.2:8443,10.0.0.3:8443 clients=…; a host name stands for all of its addresses; Consul finds a service without addresses"`
	mtls.Files
	consul.Config
}

// Mesh is the process's membership in the mesh: its identity and its view of the other services.
type Mesh struct {
	Identity *mtls.Identity

	services   Addresses
	watchers   map[string]*resolver.Watcher // of services that are named by host names
	name       string
	agent      *consul.Agent // nil: everything is in the configuration
	operations *Operations
	log        *slog.Logger
	working    sync.WaitGroup
	background context.Context // of the goroutines in working
	stop       context.CancelFunc
}

// Join gets the process's identity and keeps it valid until Close.
func (c MeshConfig) Join(ctx context.Context, name string, operations *Operations, log *slog.Logger) (*Mesh, error) {
	m := &Mesh{services: c.Services, watchers: map[string]*resolver.Watcher{}, name: name, operations: operations, log: log}
	for service, addresses := range c.Services {
		if w := resolver.New(service, addresses, net.DefaultResolver.LookupNetIP, log); w != nil {
			m.watchers[service] = w
		}
	}
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
			return errors.New("IRONPLANE_OPERATIONS_LISTEN is not set: Consul needs it to check whether this process is ready")
		}
		m.operations.Check(health.Check{Name: "consul", Ask: m.agent.Check, Optional: true})
	}
	return m.identify(ctx, c.Files)
}

// findTimeout is how long a process that starts waits for Consul or a name server to find the other services.
const findTimeout = time.Minute

// Find calls update with the addresses of each other service, and again when Consul or a name server has others, until Close.
func (m *Mesh) Find(ctx context.Context, update func(service string, addresses []string)) error {
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	found := map[string]chan struct{}{}
	for service, addresses := range m.services {
		switch {
		case service == m.name: // the process asks itself directly
		case m.watchers[service] != nil:
			found[service] = m.follow(service, m.watchers[service].Run, update)
		case len(addresses) > 0:
			update(service, addresses)
		case m.agent != nil:
			watch := func(ctx context.Context, update func([]string)) { m.agent.Watch(ctx, service, update) }
			found[service] = m.follow(service, watch, update)
		default:
			return fmt.Errorf("IRONPLANE_SERVICES has no address for %s: add one, or set CONSUL_URL", service)
		}
	}
	for service, found := range found {
		select {
		case <-found:
		case <-ctx.Done():
			return fmt.Errorf("find %s: %w", service, ctx.Err())
		}
	}
	return nil
}

// follow watches the addresses of a service. The channel is closed once they are known.
func (m *Mesh) follow(
	service string,
	watch func(ctx context.Context, update func(addresses []string)),
	update func(service string, addresses []string),
) chan struct{} {
	found := make(chan struct{})
	once := sync.OnceFunc(func() { close(found) })
	m.working.Go(func() {
		watch(m.background, func(addresses []string) {
			update(service, addresses)
			once()
		})
	})
	return found
}

// Refresh looks up the addresses of a service soon, because an instance cannot be reached. Consul reports changes by itself.
func (m *Mesh) Refresh(service string) { m.watchers[service].Refresh() }

var errNoCertificate = errors.New("the process has no certificate: set IRONPLANE_MESH_CERTIFICATE or CONSUL_URL")

// identify gets the process's certificate and keeps it renewed.
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

// Close stops the renewal and the watches.
func (m *Mesh) Close() {
	m.stop()
	m.working.Wait()
}

// Serve is Operations.Serve, and registers the process with Consul meanwhile.
func (m *Mesh) Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	if m.agent == nil {
		return m.operations.Serve(ctx, listener, handler, func() {})
	}
	registration := m.agent.Registration(m.name, listener.Addr(), m.operations.address)
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
