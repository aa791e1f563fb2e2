package gateway

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
)

const (
	// usesPause is how often identity is told which keys were used, and usesTime how long that may take.
	usesPause = 5 * time.Second
	usesTime  = 5 * time.Second
	// mostUses is how many keys are noted until then, and usesAtOnce of how many identity is told in one question.
	mostUses   = 100_000
	usesAtOnce = 1000
)

// uses are the keys that were used of late. Identity is told now and then; what it cannot be told of is forgotten.
type uses struct {
	peers mesh.Peers
	stop  context.CancelFunc
	work  sync.WaitGroup

	mu   sync.Mutex
	keys map[int64]struct{}
}

// newUses works until Close.
func newUses(peers mesh.Peers) *uses {
	ctx, stop := context.WithCancel(principal.With(context.Background(), &principal.Call{Peer: principal.Gateway, RequestID: rand.Text()}))
	u := &uses{peers: peers, stop: stop, keys: map[int64]struct{}{}}
	u.work.Go(func() {
		tick := time.NewTicker(usesPause)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				u.tell(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
	return u
}

// Close ends it.
func (u *uses) Close() {
	u.stop()
	u.work.Wait()
}

func (u *uses) note(key int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.keys) < mostUses {
		u.keys[key] = struct{}{}
	}
}

func (u *uses) tell(ctx context.Context) {
	u.mu.Lock()
	used := u.keys
	u.keys = map[int64]struct{}{}
	u.mu.Unlock()
	for some := range slices.Chunk(slices.Collect(maps.Keys(used)), usesAtOnce) {
		ids := make([]string, len(some))
		for i, id := range some {
			ids[i] = strconv.FormatInt(id, 10)
		}
		asking, cancel := u.peers.Limit(ctx, usesTime)
		var none struct{}
		err := u.peers.Ask(asking, "identity", keycache.UsesPath+"?keys="+strings.Join(ids, ","), &none)
		cancel()
		if err != nil {
			return
		}
	}
}
