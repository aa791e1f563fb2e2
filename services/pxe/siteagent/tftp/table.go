package tftp

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/ironplane/ironplane/services/pxe/siteagent/share"
)

// table has the transfers in progress. The client of a transfer that was never acknowledged may be a forged address. So if a share
// is used up, a new transfer takes the place of the oldest one in it that was never acknowledged.
type table struct {
	limit *share.Limit

	mu      sync.Mutex
	started int64 // how many transfers have started
	active  map[netip.AddrPort]*entry
}

// entry is a transfer in the table.
type entry struct {
	client  netip.AddrPort
	number  int64 // in the order of starting
	isAcked atomic.Bool
	ctx     context.Context // ends when the transfer is dropped
	cancel  context.CancelFunc
}

func newTable(refusals *share.Refusals) *table {
	return &table{
		limit:  share.NewLimit("tftp-transfers", share.Max{Total: 512, PerNetwork: 256, PerAddress: 8}, refusals),
		active: map[netip.AddrPort]*entry{},
	}
}

// start adds a transfer. It returns nil if none may start. It ignores a repeated request while its transfer runs, because a client
// repeats a request whose first reply was lost.
func (t *table) start(ctx context.Context, client netip.AddrPort) *entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.active[client] != nil {
		return nil
	}
	for {
		full := t.limit.Enter(client.Addr())
		if full == share.None {
			break
		}
		oldest := t.oldestUnacked(full, client.Addr())
		if oldest == nil {
			t.limit.Refuse(client.Addr())
			return nil
		}
		t.limit.Refuse(oldest.client.Addr())
		t.remove(oldest)
	}
	t.started++
	e := &entry{client: client, number: t.started}
	e.ctx, e.cancel = context.WithCancel(ctx)
	t.active[client] = e
	return e
}

// oldestUnacked returns the oldest transfer of a client's share that was never acknowledged, or nil.
func (t *table) oldestUnacked(scope share.Scope, client netip.Addr) (oldest *entry) {
	for _, e := range t.active {
		if !e.isAcked.Load() && scope.Covers(client, e.client.Addr()) && (oldest == nil || e.number < oldest.number) {
			oldest = e
		}
	}
	return oldest
}

// end removes a transfer, unless it was dropped before.
func (t *table) end(e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.active[e.client] == e {
		t.remove(e)
	}
}

func (t *table) remove(e *entry) {
	e.cancel()
	delete(t.active, e.client)
	t.limit.Leave(e.client.Addr())
}
