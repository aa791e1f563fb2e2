package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxConnections bounds the connections to all instances of a service.
	maxConnections = 1024
	// maxIdleConnections bounds those to one instance that wait for their next use.
	maxIdleConnections = 256
	// idleTimeout is how long they wait. A service waits longer, so that it is not the one that ends them.
	idleTimeout = 90 * time.Second
	// connectionTTL is how long they are used, so that certificates are looked at again.
	connectionTTL = 10 * time.Minute
	// slotTimeout is how long a request waits for one of the connections to become free.
	slotTimeout = 2 * time.Second
)

var errNoInstance = errors.New("no instance of it is known")

// pool is our connections to the instances of one service.
type pool struct {
	service   string
	tls       func() *tls.Config
	log       *slog.Logger
	moveMu    sync.Mutex
	instances atomic.Pointer[[]*instance]
	nextTurn  atomic.Uint64
	slots     chan struct{}
}

func newPool(service string, config func() *tls.Config, log *slog.Logger) *pool {
	p := &pool{service: service, tls: config, log: log, slots: make(chan struct{}, maxConnections)}
	p.instances.Store(new([]*instance))
	return p
}

// setAddresses makes these the addresses of the instances. What is under way at another one ends there.
func (p *pool) setAddresses(addresses []string) {
	p.moveMu.Lock()
	defer p.moveMu.Unlock()
	removed := map[string]*instance{}
	for _, i := range *p.instances.Load() {
		removed[i.address] = i
	}
	now := make([]*instance, len(addresses))
	for n, address := range addresses {
		if now[n] = removed[address]; now[n] == nil {
			now[n] = newInstance(p.service, address, p.log)
		}
		delete(removed, address)
	}
	p.instances.Store(&now)
	for _, i := range removed {
		i.retire()
	}
}

// connect answers a connection to one of the instances.
func (p *pool) connect(ctx context.Context) (*connection, error) {
	if err := p.acquireSlot(ctx); err != nil {
		return nil, err
	}
	c, err := p.choose(ctx)
	if err != nil {
		<-p.slots
	}
	return c, err
}

// choose takes the instance that has least to do or, where that rests or cannot be connected to, another one. Where there is
// none, those that rest are tried.
func (p *pool) choose(ctx context.Context) (*connection, error) {
	all := *p.instances.Load()
	if len(all) == 0 {
		return nil, errNoInstance
	}
	turn := int(p.nextTurn.Add(1) % uint64(len(all)))
	first := leastLoaded(all, turn)
	c, connectErr := first.connect(ctx, p.tls)
	for n := 0; c == nil && n < len(all) && ctx.Err() == nil; n++ {
		if i := all[(turn+n)%len(all)]; i != first {
			var err error
			c, err = i.connect(ctx, p.tls)
			connectErr = errors.Join(connectErr, err)
		}
	}
	for n := 0; c == nil && n < len(all) && ctx.Err() == nil; n++ {
		c = all[(turn+n)%len(all)].probe(ctx, p.tls)
	}
	if c == nil {
		return nil, connectErr
	}
	return c, nil
}

// leastLoaded is the instance that has least to do. Of several, it is the first from the turn on.
func leastLoaded(all []*instance, turn int) *instance {
	var best *instance
	for n := range all {
		i := all[(turn+n)%len(all)]
		if best == nil || i.load() < best.load() {
			best = i
		}
	}
	return best
}

func (p *pool) acquireSlot(ctx context.Context) error {
	select {
	case p.slots <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(slotTimeout)
	defer timer.Stop()
	select {
	case p.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return fmt.Errorf("all %d connections are in use", maxConnections)
	}
}

// release gives a connection back, for its next use where it has one.
func (p *pool) release(c *connection, keepConnection bool) {
	c.report(errNotInstanceFault) // unless it has been said before
	c.instance.inFlight.Add(-1)
	if !keepConnection || !c.instance.putIdle(c) {
		c.abort()
	}
	<-p.slots
}
