package gateway

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/settings"
)

// highestRate is the highest limit that a bucket can count.
const highestRate = 1_000_000

// follow has the gateway go by the settings, until unfollow. Where system is away as it starts, it goes by identity's copy.
func (g *Gateway) follow(woken <-chan struct{}) {
	g.settings = &settings.Follower{
		Peers: g.peers,
		Woken: woken,
		Heard: g.goBy,
		Last: func(ctx context.Context) (last settings.Values, err error) {
			return last, g.peers.Ask(ctx, "identity", settings.Path, &last)
		},
	}
	ctx, stop := context.WithCancel(principal.With(context.Background(), &principal.Call{Peer: principal.Gateway, RequestID: rand.Text()}))
	_ = g.goBy(ctx, nil)
	_ = g.settings.Ask(ctx)
	away := g.secured.ask(ctx)
	var following sync.WaitGroup
	following.Go(func() { g.secured.follow(ctx, away) })
	following.Go(func() {
		for last := ""; ctx.Err() == nil; {
			if err := g.settings.Follow(ctx); err != nil && ctx.Err() == nil && err.Error() != last {
				last = err.Error()
				g.log.Warn("the settings cannot be asked for: the last ones count", "request_id", principal.From(ctx).RequestID, "error", err)
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	})
	g.unfollow = func() {
		stop()
		following.Wait()
	}
}

// goBy holds callers to their limits as they are set now.
func (g *Gateway) goBy(_ context.Context, v settings.Values) error {
	of := func(s settings.Integer) int { return max(1, min(s.In(v), highestRate)) }
	g.perOwner.Set(of(settings.OwnerRate), of(settings.OwnerBurst))
	g.perCaller.Set(of(settings.AddressRate), of(settings.AddressBurst))
	g.owners.Set(of(settings.OwnerConcurrency))
	g.perKey.Set((of(settings.OwnerConcurrency) + 1) / 2)
	g.addresses.Set(of(settings.AddressConcurrency))
	return nil
}
