package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/catalog"
	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
)

// Checks returns a check of each service, and of the certificate. Without one service the gateway still serves the others, so only
// the check "services" is required: it fails if none responds.
func (g *Gateway) Checks() []health.Check {
	all := []health.Check{{Name: "services", Ask: g.checkAnyService}}
	for _, service := range catalog.Names() {
		all = append(
			all,
			health.Check{Name: service, Optional: true, Ask: func(ctx context.Context) error { return g.checkService(ctx, service) }},
		)
	}
	return append(all, health.Check{Name: "caller-certificate", Optional: true, Ask: g.certificates.checkExpiry})
}

// readOnlyTimeout bounds the questions for one answer of /-/health, and readOnlyTTL is how long their outcome is reused, however often
// it is requested.
const readOnlyTimeout, readOnlyTTL = 500 * time.Millisecond, time.Second

// readOnlyServices holds the services that accepted no changes when they were last asked.
type readOnlyServices struct {
	mu    sync.Mutex
	names []string
	asked time.Time
}

// findReadOnly returns the names of the services that say that their database takes no changes.
func (g *Gateway) findReadOnly(ctx context.Context) []string {
	g.readOnly.mu.Lock()
	defer g.readOnly.mu.Unlock()
	if time.Since(g.readOnly.asked) < readOnlyTTL {
		return g.readOnly.names
	}
	ctx, cancel := g.peers.Limit(context.WithoutCancel(ctx), readOnlyTimeout) // other callers wait for the same outcome
	defer cancel()
	services := slices.Sorted(maps.Keys(g.upstreams))
	answers := make([]health.Changes, len(services))
	var asking sync.WaitGroup
	for i, service := range services {
		asking.Go(func() {
			if g.peers.Ask(ctx, service, health.ChangesPath, &answers[i]) != nil { // it is away, or of a version that does not say
				answers[i] = health.Changes{}
			}
		})
	}
	asking.Wait()
	g.readOnly.names, g.readOnly.asked = nil, time.Now()
	for i, service := range services {
		if answers[i].ReadOnly {
			g.readOnly.names = append(g.readOnly.names, service)
		}
	}
	return g.readOnly.names
}

// checkService asks for a path that no service has. A 404 is enough to show that the service responds.
func (g *Gateway) checkService(ctx context.Context, service string) error {
	ctx = principal.NewContext(ctx, &principal.Call{RequestID: rand.Text()})
	err := g.peers.Ask(ctx, service, "/internal/none", nil)
	if errors.Is(err, mesh.ErrUnavailable) || ctx.Err() != nil {
		return err
	}
	return nil
}

// checkAnyService asks all services at once, and returns as soon as one has responded.
func (g *Gateway) checkAnyService(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var reachable atomic.Bool
	var checks sync.WaitGroup
	for _, service := range catalog.Names() {
		checks.Go(func() {
			if g.checkService(ctx, service) == nil {
				reachable.Store(true)
				stop()
			}
		})
	}
	checks.Wait()
	if !reachable.Load() {
		return errors.New("no service responds")
	}
	return nil
}
