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
	// keyUsageInterval is how often identity is told which keys were used, and keyUsageTimeout how long each request may take.
	keyUsageInterval = 5 * time.Second
	keyUsageTimeout  = 5 * time.Second
	// maxNotedKeys bounds how many keys are noted between two reports, and keyUsageBatch how many keys one request names.
	maxNotedKeys  = 100_000
	keyUsageBatch = 1000
)

// keyUsage notes which keys are used, and reports them to identity. Keys that cannot be reported are dropped.
type keyUsage struct {
	peers mesh.Peers
	stop  context.CancelFunc
	tasks sync.WaitGroup

	mu   sync.Mutex
	keys map[int64]struct{}
}

// newKeyUsage returns a keyUsage that reports until Close.
func newKeyUsage(peers mesh.Peers) *keyUsage {
	ctx, stop := context.WithCancel(
		principal.NewContext(context.Background(), &principal.Call{Peer: principal.Gateway, RequestID: rand.Text()}),
	)
	u := &keyUsage{peers: peers, stop: stop, keys: map[int64]struct{}{}}
	u.tasks.Go(func() {
		tick := time.NewTicker(keyUsageInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				u.report(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
	return u
}

// Close ends the reports.
func (u *keyUsage) Close() {
	u.stop()
	u.tasks.Wait()
}

// note notes that a key was used.
func (u *keyUsage) note(key int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.keys) < maxNotedKeys {
		u.keys[key] = struct{}{}
	}
}

// report sends the noted keys to identity.
func (u *keyUsage) report(ctx context.Context) {
	u.mu.Lock()
	used := u.keys
	u.keys = map[int64]struct{}{}
	u.mu.Unlock()
	for batch := range slices.Chunk(slices.Collect(maps.Keys(used)), keyUsageBatch) {
		ids := make([]string, len(batch))
		for i, id := range batch {
			ids[i] = strconv.FormatInt(id, 10)
		}
		askCtx, cancel := u.peers.Limit(ctx, keyUsageTimeout)
		var none struct{}
		err := u.peers.Ask(askCtx, "identity", keycache.UsagePath+"?keys="+strings.Join(ids, ","), &none)
		cancel()
		if err != nil {
			return
		}
	}
}
