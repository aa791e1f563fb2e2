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
	// maxIdleConnections bounds the idle connections to one instance.
	maxIdleConnections = 256
	// idleTimeout is how long a connection may be idle. Services wait longer, so that they are not the ones to close it.
	idleTimeout = 90 * time.Second
	// connectionTTL is how long a connection is used, so that certificates are verified again.
	connectionTTL = 10 * time.Minute
	// slotTimeout is how long a request waits for one of the connections to become free.
	slotTimeout = 2 * time.Second
)

var errNoInstance = errors.New("no instance is known")

// pool holds the connections to all instances of one service.
type pool struct {
	service   string
	tls       func() *tls.Config
	log       *slog.Logger
	moveMu    sync.Mutex
	instances atomic.Pointer[[]*instance]
	nextTurn  atomic.Uint64
	slots     chan struct{}

	reportUnreachable func() // no instance is known, or one cannot be connected to
}

func newPool(service string, config func() *tls.Config, log *slog.Logger) *pool {
	p := &pool{service: service, tls: config, log: log, slots: make(chan struct{}, maxConnections), reportUnreachable: func() {}}
	p.instances.Store(new([]*instance))
	return p
}

// setAddresses replaces the instances by those at the addresses. Exchanges with a removed instance end there.
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

// connect returns a connection to one of the instances.
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

// choose connects to the instance with the fewest requests. If that fails, it tries the others in turn, and resting instances
// last.
func (p *pool) choose(ctx context.Context) (*connection, error) {
	all := *p.instances.Load()
	if len(all) == 0 {
		p.reportUnreachable()
		return nil, errNoInstance
	}
	turn := int(p.nextTurn.Add(1) % uint64(len(all)))
	first := leastLoaded(all, turn)
	c, connectErr := first.connect(ctx, p.tls)
	if c == nil && ctx.Err() == nil {
		p.reportUnreachable()
	}
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

// leastLoaded returns the instance with the fewest requests. Of several, it is the first one from turn on.
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

// acquireSlot waits until one of maxConnections is free.
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

// release returns a connection to its instance for its next use, or closes it.
func (p *pool) release(c *connection, keepConnection bool) {
	c.report(errNotInstanceFault) // unless the result was reported before
	c.instance.inFlight.Add(-1)
	if !keepConnection || !c.instance.putIdle(c) {
		c.abort()
	}
	<-p.slots
}
