package gateway

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/settings"
)

// maxRate is the highest rate that a bucket can count.
const maxRate = 1_000_000

// followSettings applies the settings, and their changes until stopFollowing is called. If the system service is away at the
// start, it uses the copy of the identity service.
func (g *Gateway) followSettings(woken <-chan struct{}) {
	g.settings = &settings.Follower{
		Peers:    g.peers,
		Woken:    woken,
		OnChange: g.applySettings,
		LoadLast: func(ctx context.Context) (last settings.Values, err error) {
			return last, g.peers.Ask(ctx, "identity", settings.Path, &last)
		},
	}
	ctx, stop := context.WithCancel(
		principal.NewContext(context.Background(), &principal.Call{Peer: principal.Gateway, RequestID: rand.Text()}),
	)
	_ = g.applySettings(ctx, nil)
	_ = g.settings.Ask(ctx)
	askErr := g.certificates.refresh(ctx)
	var followers sync.WaitGroup
	followers.Go(func() { g.certificates.follow(ctx, askErr) })
	followers.Go(func() {
		for lastError := ""; ctx.Err() == nil; {
			if err := g.settings.Follow(ctx); err != nil && ctx.Err() == nil && err.Error() != lastError {
				lastError = err.Error()
				g.log.Warn("load settings failed, keeping the last ones", "request_id", principal.FromContext(ctx).RequestID, "error", err)
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	})
	g.stopFollowing = func() {
		stop()
		followers.Wait()
	}
}

// applySettings sets the limits.
func (g *Gateway) applySettings(_ context.Context, v settings.Values) error {
	limit := func(s settings.Integer) int { return max(1, min(s.In(v), maxRate)) }
	g.ownerRate.Set(limit(settings.OwnerRate), limit(settings.OwnerBurst))
	g.addressRate.Set(limit(settings.AddressRate), limit(settings.AddressBurst))
	g.ownerConcurrency.Set(limit(settings.OwnerConcurrency))
	g.keyConcurrency.Set((limit(settings.OwnerConcurrency) + 1) / 2)
	g.addressConcurrency.Set(limit(settings.AddressConcurrency))
	return nil
}
