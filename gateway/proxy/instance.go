package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

const (
	// restTimeout is how long an instance is left alone that could not be connected to, or failed to answer several times
	// in a row. Then one request finds out whether it is back.
	restTimeout = 500 * time.Millisecond
	// probeTimeout is how long a connection to an instance that is left alone may take, and disturbers how many may try at
	// the same time.
	probeTimeout = 500 * time.Millisecond
	maxProbes    = 32
	// maxFailures is how often in a row it may fail to answer.
	maxFailures = 5
)

// instance is one process of a service.
type instance struct {
	address     string
	breaker     *gobreaker.TwoStepCircuitBreaker[struct{}]
	inFlight    atomic.Int64 // requests that are there
	probes      atomic.Int64 // of those that disturb its rest
	isResting   atomic.Bool
	lastFailure atomic.Pointer[failure] // the last one

	mu              sync.Mutex
	idleConnections []*connection // the one used last is at the end
	isRetired       bool
}

type failure struct {
	error
	isUnreachable bool // it could not be connected to
}

// reportFailure tells the breaker, which asks back for what it was.
func (i *instance) reportFailure(done func(error), f failure) {
	i.lastFailure.Store(&f)
	done(f)
}

// errNotInstanceFault is of a request whose end says nothing of the instance.
var errNotInstanceFault = errors.New("its caller left")

func newInstance(service, address string, log *slog.Logger) *instance {
	i := &instance{address: address}
	i.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Timeout: restTimeout,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return i.lastFailure.Load().isUnreachable || c.ConsecutiveFailures > maxFailures
		},
		IsExcluded: func(err error) bool { return errors.Is(err, errNotInstanceFault) },
		OnStateChange: func(_ string, before, now gobreaker.State) {
			i.isResting.Store(now == gobreaker.StateOpen)
			switch {
			case before == gobreaker.StateClosed:
				log.Warn("an instance is left alone, which fails", "of", service, "at", address, "error", i.lastFailure.Load().error)
			case now == gobreaker.StateClosed:
				log.Warn("an instance is back", "of", service, "at", address)
			}
		},
	})
	return i
}

// load is how much the instance has to do.
func (i *instance) load() int64 {
	if i.isResting.Load() && i.breaker.State() == gobreaker.StateOpen {
		return math.MaxInt64
	}
	return i.inFlight.Load()
}

// connect answers a connection, which the pool's release gives back.
func (i *instance) connect(ctx context.Context, config func() *tls.Config) (*connection, error) {
	done, err := i.breaker.Allow()
	if err != nil {
		return nil, fmt.Errorf("%s is left alone: %w", i.address, err)
	}
	i.inFlight.Add(1)
	c, err := i.openConnection(ctx, config)
	switch {
	case err == nil:
		c.instance, c.reportResult = i, done
		return c, nil
	case ctx.Err() != nil:
		done(errNotInstanceFault)
	default:
		i.reportFailure(done, failure{err, true})
	}
	i.inFlight.Add(-1)
	return nil, err
}

// probe connects to an instance that could not be connected to a moment ago and is left alone, for who has no other.
func (i *instance) probe(ctx context.Context, config func() *tls.Config) *connection {
	defer i.probes.Add(-1)
	if last := i.lastFailure.Load(); i.probes.Add(1) > maxProbes || last == nil || !last.isUnreachable {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	c, err := i.openConnection(ctx, config)
	if err != nil {
		return nil
	}
	i.inFlight.Add(1)
	c.instance = i
	return c
}

func (i *instance) openConnection(ctx context.Context, config func() *tls.Config) (*connection, error) {
	for c := i.popIdle(); c != nil; c = i.popIdle() {
		if c.isReusable() {
			return c, nil
		}
		c.abort()
	}
	return dial(ctx, i.address, config())
}

func (i *instance) popIdle() *connection {
	i.mu.Lock()
	defer i.mu.Unlock()
	last := len(i.idleConnections) - 1
	if last < 0 {
		return nil
	}
	c := i.idleConnections[last]
	i.idleConnections[last] = nil
	i.idleConnections = i.idleConnections[:last]
	return c
}

// putIdle tells whether there is room for one more that waits. It ends one that has waited for too long.
func (i *instance) putIdle(c *connection) bool {
	c.idleSince = time.Now()
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.idleConnections) > 0 && c.idleSince.Sub(i.idleConnections[0].idleSince) > idleTimeout {
		i.idleConnections[0].abort()
		i.idleConnections = append(i.idleConnections[:0], i.idleConnections[1:]...)
	}
	if i.isRetired || len(i.idleConnections) == maxIdleConnections || c.idleSince.Sub(c.createdAt) > connectionTTL {
		return false
	}
	i.idleConnections = append(i.idleConnections, c)
	return true
}

// retire ends the connections that nobody uses, and others once they are given back.
func (i *instance) retire() {
	i.mu.Lock()
	i.isRetired = true
	i.mu.Unlock()
	i.closeIdle()
}

// closeIdle ends the connections that nobody uses.
func (i *instance) closeIdle() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, c := range i.idleConnections {
		c.abort()
	}
	i.idleConnections = nil
}
