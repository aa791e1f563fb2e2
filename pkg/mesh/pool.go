package mesh

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxConnections bounds the connections to all instances of a service.
	maxConnections = 1024
	// maxIdle bounds those to one instance that wait for their next use.
	maxIdle = 256
	// idleTime is how long they wait. A service waits longer, so that it is not the one that ends them.
	idleTime = 90 * time.Second
	// waitTime is how long a request waits for one of the connections to become free.
	waitTime = 2 * time.Second
	// restTime is how long an instance that could not be connected to is left alone.
	restTime = 500 * time.Millisecond
)

// pool is our connections to the instances of one service.
type pool struct {
	tls       *tls.Config
	instances []*instance
	turn      atomic.Uint64
	slots     chan struct{}
}

// instance is one process of a service.
type instance struct {
	address string

	mu     sync.Mutex
	idle   []*connection // the one used last is at the end
	failed time.Time     // when it could last not be connected to
	reason error
}

func newPool(addresses []string, config *tls.Config) *pool {
	p := &pool{tls: config, slots: make(chan struct{}, maxConnections)}
	for _, address := range addresses {
		p.instances = append(p.instances, &instance{address: address})
	}
	return p
}

// connect answers a connection to the instance whose turn it is or, where that cannot be connected to, to the next.
func (p *pool) connect(ctx context.Context) (*connection, error) {
	if err := p.reserve(ctx); err != nil {
		return nil, err
	}
	turn := p.turn.Add(1)
	var failed error
	for n := range uint64(len(p.instances)) {
		c, err := p.instances[(turn+n)%uint64(len(p.instances))].connect(ctx, p.tls)
		if err == nil {
			return c, nil
		}
		failed = errors.Join(failed, err)
		if ctx.Err() != nil {
			break
		}
	}
	<-p.slots
	return nil, failed
}

func (p *pool) reserve(ctx context.Context) error {
	select {
	case p.slots <- struct{}{}:
		return nil
	default:
	}
	wait := time.NewTimer(waitTime)
	defer wait.Stop()
	select {
	case p.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-wait.C:
		return fmt.Errorf("all %d connections are in use", maxConnections)
	}
}

// release gives a connection back, for its next use where it has one.
func (p *pool) release(c *connection, reusable bool) {
	if !reusable || !c.to.keep(c) {
		c.cut()
	}
	<-p.slots
}

func (i *instance) connect(ctx context.Context, config *tls.Config) (*connection, error) {
	for c := i.take(); c != nil; c = i.take() {
		if c.quiet() {
			return c, nil
		}
		c.cut()
	}
	if err := i.resting(); err != nil {
		return nil, err
	}
	c, err := dial(ctx, i.address, config)
	if err != nil {
		if ctx.Err() == nil {
			i.rest(err)
		}
		return nil, err
	}
	c.to = i
	return c, nil
}

func (i *instance) take() *connection {
	i.mu.Lock()
	defer i.mu.Unlock()
	last := len(i.idle) - 1
	if last < 0 {
		return nil
	}
	c := i.idle[last]
	i.idle[last] = nil
	i.idle = i.idle[:last]
	return c
}

// keep tells whether there is room for one more that waits. It ends one that has waited for too long.
func (i *instance) keep(c *connection) bool {
	c.idle = time.Now()
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.idle) > 0 && c.idle.Sub(i.idle[0].idle) > idleTime {
		i.idle[0].cut()
		i.idle = append(i.idle[:0], i.idle[1:]...)
	}
	if len(i.idle) == maxIdle {
		return false
	}
	i.idle = append(i.idle, c)
	return true
}

// resting is the reason where the instance could not be connected to a moment ago.
func (i *instance) resting() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if time.Since(i.failed) < restTime {
		return i.reason
	}
	return nil
}

func (i *instance) rest(reason error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.failed, i.reason = time.Now(), reason
}
