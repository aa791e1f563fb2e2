package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/catalog"
	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
)

// Checks are whether the services answer. Without one of them a gateway serves the others; without any it serves nobody.
func (g *Gateway) Checks() []health.Check {
	all := []health.Check{{Name: "services", Ask: g.checkAnyService}}
	for _, service := range catalog.Names() {
		all = append(
			all,
			health.Check{Name: service, Optional: true, Ask: func(ctx context.Context) error { return g.checkService(ctx, service) }},
		)
	}
	return append(all, health.Check{Name: "certificate for callers", Optional: true, Ask: g.certificates.checkExpiry})
}

// checkService asks for what no service has: that it says so will do.
func (g *Gateway) checkService(ctx context.Context, service string) error {
	ctx = principal.With(ctx, &principal.Call{RequestID: rand.Text()})
	err := g.peers.Ask(ctx, service, "/internal/none", nil)
	if errors.Is(err, mesh.ErrAway) || ctx.Err() != nil {
		return err
	}
	return nil
}

// checkAnyService asks all of them, until one has answered.
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
		return errors.New("none of the services answers")
	}
	return nil
}
