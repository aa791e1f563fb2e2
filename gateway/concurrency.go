package gateway

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ironplane/ironplane/pkg/problem"
)

// concurrency bounds how many requests of each caller are under way at this gateway.
type concurrency[K comparable] struct {
	most    atomic.Int64
	refused prometheus.Counter

	mu       sync.Mutex
	underWay map[K]int64
}

func newConcurrency[K comparable](name string, m *metrics) *concurrency[K] {
	return &concurrency[K]{refused: m.limits.WithLabelValues(name, "concurrency"), underWay: map[K]int64{}}
}

// enter counts a request until leave.
func (c *concurrency[K]) enter(who K) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := c.most.Load()
	if c.underWay[who] >= most {
		c.refused.Inc()
		f := problem.New(problem.TooManyRequests, "More than %d requests at the same time.", most)
		f.RetryAfter = time.Second
		return f
	}
	c.underWay[who]++
	return nil
}

func (c *concurrency[K]) leave(who K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.underWay[who]--; c.underWay[who] == 0 {
		delete(c.underWay, who)
	}
}
