package limits

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ironplane/ironplane/pkg/problem"
)

// Concurrency bounds how many requests of each caller are under way at this gateway.
type Concurrency[K comparable] struct {
	limit   atomic.Int64
	refused prometheus.Counter

	mu      sync.Mutex
	running map[K]int64
}

// NewConcurrency returns a bound that lets nothing through until Set. Its counter counts what is refused.
func NewConcurrency[K comparable](refused prometheus.Counter) *Concurrency[K] {
	return &Concurrency[K]{refused: refused, running: map[K]int64{}}
}

// Set changes the bound.
func (c *Concurrency[K]) Set(limit int) { c.limit.Store(int64(limit)) }

// Enter counts a request until Leave. The error is a 429.
func (c *Concurrency[K]) Enter(caller K) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	limit := c.limit.Load()
	if c.running[caller] >= limit {
		c.refused.Inc()
		f := problem.New(problem.TooManyRequests, "More than %d requests at the same time.", limit)
		f.RetryAfter = time.Second
		return f
	}
	c.running[caller]++
	return nil
}

// Leave ends a request that Enter counted.
func (c *Concurrency[K]) Leave(caller K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[caller]--; c.running[caller] == 0 {
		delete(c.running, caller)
	}
}
