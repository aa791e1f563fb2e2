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
	// restTime is how long an instance is left alone that could not be connected to, or failed to answer several times
	// in a row. Then one request finds out whether it is back.
	restTime = 500 * time.Millisecond
	// disturbTime is how long a connection to an instance that is left alone may take, and disturbers how many may try at
	// the same time.
	disturbTime = 500 * time.Millisecond
	disturbers  = 32
	// tolerated is how often in a row it may fail to answer.
	tolerated = 5
)

// instance is one process of a service.
type instance struct {
	address string
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	busy    atomic.Int64 // requests that are there
	trying  atomic.Int64 // of those that disturb its rest
	resting atomic.Bool
	failure atomic.Pointer[failure] // the last one

	mu   sync.Mutex
	idle []*connection // the one used last is at the end
	gone bool
}

type failure struct {
	error
	absent bool // it could not be connected to
}

// fail tells the breaker, which asks back for what it was.
func (i *instance) fail(done func(error), f failure) {
	i.failure.Store(&f)
	done(f)
}

// errExcused is of a request whose end says nothing of the instance.
var errExcused = errors.New("its caller left")

func newInstance(service, address string, log *slog.Logger) *instance {
	i := &instance{address: address}
	i.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Timeout:     restTime,
		ReadyToTrip: func(c gobreaker.Counts) bool { return i.failure.Load().absent || c.ConsecutiveFailures > tolerated },
		IsExcluded:  func(err error) bool { return errors.Is(err, errExcused) },
		OnStateChange: func(_ string, before, now gobreaker.State) {
			i.resting.Store(now == gobreaker.StateOpen)
			switch {
			case before == gobreaker.StateClosed:
				log.Warn("an instance is left alone, which fails", "of", service, "at", address, "error", i.failure.Load().error)
			case now == gobreaker.StateClosed:
				log.Warn("an instance is back", "of", service, "at", address)
			}
		},
	})
	return i
}

// load is how much the instance has to do.
func (i *instance) load() int64 {
	if i.resting.Load() && i.breaker.State() == gobreaker.StateOpen {
		return math.MaxInt64
	}
	return i.busy.Load()
}

// connect answers a connection, which the pool's release gives back.
func (i *instance) connect(ctx context.Context, config func() *tls.Config) (*connection, error) {
	done, err := i.breaker.Allow()
	if err != nil {
		return nil, fmt.Errorf("%s is left alone: %w", i.address, err)
	}
	i.busy.Add(1)
	c, err := i.connected(ctx, config)
	switch {
	case err == nil:
		c.to, c.ended = i, done
		return c, nil
	case ctx.Err() != nil:
		done(errExcused)
	default:
		i.fail(done, failure{err, true})
	}
	i.busy.Add(-1)
	return nil, err
}

// disturb connects to an instance that could not be connected to a moment ago and is left alone, for who has no other.
func (i *instance) disturb(ctx context.Context, config func() *tls.Config) *connection {
	defer i.trying.Add(-1)
	if last := i.failure.Load(); i.trying.Add(1) > disturbers || last == nil || !last.absent {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, disturbTime)
	defer cancel()
	c, err := i.connected(ctx, config)
	if err != nil {
		return nil
	}
	i.busy.Add(1)
	c.to = i
	return c
}

func (i *instance) connected(ctx context.Context, config func() *tls.Config) (*connection, error) {
	for c := i.take(); c != nil; c = i.take() {
		if c.quiet() {
			return c, nil
		}
		c.cut()
	}
	return dial(ctx, i.address, config())
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
	if i.gone || len(i.idle) == maxIdle || c.idle.Sub(c.born) > lifeTime {
		return false
	}
	i.idle = append(i.idle, c)
	return true
}

// leave ends the connections that nobody uses, and others once they are given back.
func (i *instance) leave() {
	i.mu.Lock()
	i.gone = true
	i.mu.Unlock()
	i.forget()
}

// forget ends the connections that nobody uses.
func (i *instance) forget() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, c := range i.idle {
		c.cut()
	}
	i.idle = nil
}
