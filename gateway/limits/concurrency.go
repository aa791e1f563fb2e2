package limits

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ironplane/ironplane/pkg/problem"
)

// Concurrency bounds how many requests of each caller this gateway serves at the same time.
type Concurrency[K comparable] struct {
	limit   atomic.Int64
	refused prometheus.Counter

	mu      sync.Mutex
	running map[K]int64
}

// NewConcurrency returns a limit that allows nothing until Set. The counter counts refusals.
func NewConcurrency[K comparable](refused prometheus.Counter) *Concurrency[K] {
	return &Concurrency[K]{refused: refused, running: map[K]int64{}}
}

// Set changes the limit.
func (c *Concurrency[K]) Set(limit int) { c.limit.Store(int64(limit)) }

// Enter counts a request until Leave. The error is a 429.
func (c *Concurrency[K]) Enter(caller K) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	limit := c.limit.Load()
	if c.running[caller] >= limit {
		c.refused.Inc()
		f := problem.New(
			problem.TooManyRequests,
			"The limit of %d requests at the same time is reached. Try again when one has finished.",
			limit,
		)
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
