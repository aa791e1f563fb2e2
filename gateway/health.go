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
	all := []health.Check{{Name: "services", Ask: g.anyAnswers}}
	for _, service := range catalog.Names() {
		all = append(all, health.Check{Name: service, Optional: true, Ask: func(ctx context.Context) error { return g.answers(ctx, service) }})
	}
	return append(all, health.Check{Name: "certificate for callers", Optional: true, Ask: g.secured.due})
}

// answers asks for what no service has: that it says so will do.
func (g *Gateway) answers(ctx context.Context, service string) error {
	ctx = principal.With(ctx, &principal.Call{RequestID: rand.Text()})
	err := g.peers.Ask(ctx, service, "/internal/none", nil)
	if errors.Is(err, mesh.ErrAway) || ctx.Err() != nil {
		return err
	}
	return nil
}

// anyAnswers asks all of them, until one has answered.
func (g *Gateway) anyAnswers(ctx context.Context) error {
	ctx, answered := context.WithCancel(ctx)
	defer answered()
	var some atomic.Bool
	var asking sync.WaitGroup
	for _, service := range catalog.Names() {
		asking.Go(func() {
			if g.answers(ctx, service) == nil {
				some.Store(true)
				answered()
			}
		})
	}
	asking.Wait()
	if !some.Load() {
		return errors.New("none of the services answers")
	}
	return nil
}
