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
	max     atomic.Int64
	refused prometheus.Counter

	mu       sync.Mutex
	underWay map[K]int64
}

// NewConcurrency returns a bound that lets nothing through until Set. Its counter counts what is refused.
func NewConcurrency[K comparable](refused prometheus.Counter) *Concurrency[K] {
	return &Concurrency[K]{refused: refused, underWay: map[K]int64{}}
}

// Set changes the bound.
func (c *Concurrency[K]) Set(bound int) { c.max.Store(int64(bound)) }

// Enter counts a request until Leave. The error is a 429.
func (c *Concurrency[K]) Enter(who K) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	bound := c.max.Load()
	if c.underWay[who] >= bound {
		c.refused.Inc()
		f := problem.New(problem.TooManyRequests, "More than %d requests at the same time.", bound)
		f.RetryAfter = time.Second
		return f
	}
	c.underWay[who]++
	return nil
}

// Leave ends a request that Enter counted.
func (c *Concurrency[K]) Leave(who K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.underWay[who]--; c.underWay[who] == 0 {
		delete(c.underWay, who)
	}
}
