package gateway

import (
	"cmp"
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
	"github.com/ironplane/ironplane/pkg/runtime/maintenance"
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

// changesTimeout bounds the questions for one answer of /-/health, and changesTTL is how long their outcome is reused, however often it
// is requested.
const changesTimeout, changesTTL = 500 * time.Millisecond, time.Second

// refusingServices are the services that accepted no changes when they were last asked.
type refusingServices struct {
	readOnly      []string            // their database takes none
	inMaintenance []string            // all of those that answered, if allMaintained is set
	maintenance   *maintenance.Status // of the first service in maintenance; nil: of none
	allMaintained bool
}

// refusals holds the last outcome of findRefusing.
type refusals struct {
	mu    sync.Mutex
	found refusingServices
	asked time.Time
}

// findRefusing returns the services that say that they accept no changes. A service that is away, or of a version that does not say,
// counts as one that accepts them.
func (g *Gateway) findRefusing(ctx context.Context) refusingServices {
	g.refusals.mu.Lock()
	defer g.refusals.mu.Unlock()
	if time.Since(g.refusals.asked) < changesTTL {
		return g.refusals.found
	}
	ctx, cancel := g.peers.Limit(context.WithoutCancel(ctx), changesTimeout) // other callers wait for the same outcome
	defer cancel()
	services := slices.Sorted(maps.Keys(g.upstreams))
	answers := make([]*health.Changes, len(services)) // nil: it did not answer
	var asking sync.WaitGroup
	for i, service := range services {
		asking.Go(func() {
			var answer health.Changes
			if g.peers.Ask(ctx, service, health.ChangesPath, &answer) == nil {
				answers[i] = &answer
			}
		})
	}
	asking.Wait()
	found := refusingServices{allMaintained: true}
	for i, service := range services {
		switch answer := answers[i]; {
		case answer == nil:
		case answer.Maintenance != nil:
			found.inMaintenance = append(found.inMaintenance, service)
			found.maintenance = cmp.Or(found.maintenance, answer.Maintenance)
		default:
			found.allMaintained = false
			if answer.ReadOnly {
				found.readOnly = append(found.readOnly, service)
			}
		}
	}
	g.refusals.found, g.refusals.asked = found, time.Now()
	return found
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
