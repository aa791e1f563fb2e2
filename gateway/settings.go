package gateway

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/ironplane/ironplane/pkg/principal"
	"github.com/ironplane/ironplane/process/setting"
)

// highestRate is the highest limit that a bucket can count.
const highestRate = 1_000_000

// follow has the gateway go by the settings, until unfollow. Where system is away as it starts, it goes by identity's copy.
func (g *Gateway) follow() {
	g.settings = &setting.Follower{Peers: g.peers, Heard: g.goBy, Last: func(ctx context.Context) (last setting.Values, err error) {
		return last, g.peers.Ask(ctx, "identity", setting.Path, &last)
	}}
	ctx, stop := context.WithCancel(principal.With(context.Background(), &principal.Call{Peer: principal.Gateway, RequestID: rand.Text()}))
	_ = g.goBy(ctx, nil)
	_ = g.settings.Ask(ctx)
	_ = g.secured.ask(ctx)
	var following sync.WaitGroup
	following.Go(func() { g.secured.follow(ctx) })
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
func (g *Gateway) goBy(_ context.Context, v setting.Values) error {
	of := func(s setting.Integer) int { return max(1, min(s.In(v), highestRate)) }
	g.perOwner.set(of(setting.OwnerRate), of(setting.OwnerBurst))
	g.perCaller.set(of(setting.AddressRate), of(setting.AddressBurst))
	g.owners.most.Store(int64(of(setting.OwnerConcurrency)))
	g.perKey.most.Store(int64((of(setting.OwnerConcurrency) + 1) / 2))
	g.addresses.most.Store(int64(of(setting.AddressConcurrency)))
	return nil
}
