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
	// restTimeout is how long an instance gets no requests after a connection to it failed, or after several failures in a row.
	// Then one request finds out whether it is back.
	restTimeout = 500 * time.Millisecond
	// probeTimeout is how long a connection to a resting instance may take, and maxProbes how many requests may try at the same
	// time.
	probeTimeout = 500 * time.Millisecond
	maxProbes    = 32
	// maxFailures is how many failures in a row an instance may have before it rests.
	maxFailures = 5
)

// instance is one process of a service.
type instance struct {
	address     string
	breaker     *gobreaker.TwoStepCircuitBreaker[struct{}]
	inFlight    atomic.Int64 // requests
	probes      atomic.Int64 // requests that try the instance while it rests
	isResting   atomic.Bool
	lastFailure atomic.Pointer[failure]

	mu              sync.Mutex
	idleConnections []*connection // the last one used is at the end
	isRetired       bool
}

// failure is why an exchange with an instance failed.
type failure struct {
	error
	isUnreachable bool // no connection could be made
}

// reportFailure tells the breaker about a failure. The breaker's settings read lastFailure, so it is stored first.
func (i *instance) reportFailure(done func(error), f failure) {
	i.lastFailure.Store(&f)
	done(f)
}

// errNotInstanceFault is the result of an exchange whose end says nothing about the instance.
var errNotInstanceFault = errors.New("the caller left")

// newInstance returns an instance whose circuit breaker opens when it cannot be reached, or fails several requests in a row.
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
				log.Warn("instance rests after failures", "service", service, "address", address, "error", i.lastFailure.Load().error)
			case now == gobreaker.StateClosed:
				log.Warn("instance is back", "service", service, "address", address)
			}
		},
	})
	return i
}

// load returns the number of requests at the instance, or the maximum while the instance rests.
func (i *instance) load() int64 {
	if i.isResting.Load() && i.breaker.State() == gobreaker.StateOpen {
		return math.MaxInt64
	}
	return i.inFlight.Load()
}

// connect returns a connection, which must go back through the pool's release.
func (i *instance) connect(ctx context.Context, config func() *tls.Config) (*connection, error) {
	done, err := i.breaker.Allow()
	if err != nil {
		return nil, fmt.Errorf("instance %s rests: %w", i.address, err)
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

// probe connects to a resting instance whose last connection failed, for a request that has no other instance. It returns nil if
// that fails, too.
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

// openConnection returns an idle connection that is still usable, or a new one.
func (i *instance) openConnection(ctx context.Context, config func() *tls.Config) (*connection, error) {
	for c := i.popIdle(); c != nil; c = i.popIdle() {
		if c.isReusable() {
			return c, nil
		}
		c.abort()
	}
	return dial(ctx, i.address, config())
}

// popIdle returns the connection that became idle last, or nil.
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

// putIdle keeps a connection for its next use, and reports whether it did. It also closes the oldest idle connection after
// idleTimeout.
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

// retire closes the idle connections now, and the others when they are released.
func (i *instance) retire() {
	i.mu.Lock()
	i.isRetired = true
	i.mu.Unlock()
	i.closeIdle()
}

// closeIdle closes the idle connections.
func (i *instance) closeIdle() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, c := range i.idleConnections {
		c.abort()
	}
	i.idleConnections = nil
}
