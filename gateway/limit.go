package gateway

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/maypok86/otter/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/fault"
)

const (
	// holding is how long requests that Redis allowed may be made use of. The limit has them back by then.
	holding = time.Second
	// batchesPerSecond is how often the busiest caller's requests are asked for.
	batchesPerSecond = 10
	// counted bounds how many callers are counted in memory, and countedFor how long one is who is silent.
	counted    = 100_000
	countedFor = time.Minute
)

// limit is how many requests each of many callers may make.
//
// It is counted twice. Redis counts for all gateways, and hands out requests in batches, so that few of them wait for
// it. Each gateway counts its own, with the same limit: so where Redis is away, there are as many times the limit as
// gateways, and never more.
type limit[K comparable] struct {
	name        string
	rate, burst int // requests a second, requests at once
	nameOf      func(K) string
	link        *cache.Link
	buckets     *otter.Cache[K, *bucket]
	allowed     prometheus.Counter
	refused     prometheus.Counter
}

// bucket is one caller's count.
type bucket struct {
	mu    sync.Mutex
	due   time.Time // when all that was let through would be due at the limit's rate (GCRA)
	held  int       // allowed by Redis, not made use of yet
	until time.Time // until when held may be
	batch int       // how many were asked for last
	wait  time.Time // until when Redis will allow none
}

func newLimit[K comparable](name string, rate, burst int, nameOf func(K) string, link *cache.Link, m *metrics) *limit[K] {
	return &limit[K]{
		name: name, rate: rate, burst: burst, nameOf: nameOf, link: link,
		buckets: otter.Must(&otter.Options[K, *bucket]{
			MaximumSize:      counted,
			ExpiryCalculator: otter.ExpiryAccessing[K, *bucket](countedFor),
		}),
		allowed: m.limits.WithLabelValues(name, "allowed"),
		refused: m.limits.WithLabelValues(name, "refused"),
	}
}

// take takes one request from who's limit. The error is a *refusal.
func (l *limit[K]) take(ctx context.Context, who K) error {
	b := l.bucketOf(who)
	b.mu.Lock()
	defer b.mu.Unlock()
	wait := l.wait(b)
	if wait <= 0 && (b.held == 0 || time.Now().After(b.until)) {
		l.fetch(ctx, b, who)
		wait = l.wait(b)
	}
	if wait > 0 {
		l.refused.Inc()
		return l.refuse(wait)
	}
	l.allowed.Inc()
	b.held--
	now := time.Now()
	if b.due.Before(now) {
		b.due = now
	}
	b.due = b.due.Add(l.interval())
	return nil
}

// giveBack undoes a take.
func (l *limit[K]) giveBack(who K) {
	b := l.bucketOf(who)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held++
	b.due = b.due.Add(-l.interval())
}

func (l *limit[K]) bucketOf(who K) *bucket {
	if b, ok := l.buckets.GetIfPresent(who); ok {
		return b
	}
	b, _ := l.buckets.SetIfAbsent(who, &bucket{})
	return b
}

func (l *limit[K]) interval() time.Duration { return time.Second / time.Duration(l.rate) }

// wait is for how long nothing is let through.
func (l *limit[K]) wait(b *bucket) time.Duration {
	room := time.Duration(l.burst-1) * l.interval()
	return max(time.Until(b.due.Add(-room)), time.Until(b.wait))
}

// fetch has Redis allow a batch: twice as many as the last time, where those were made use of in time. Where Redis is
// away, our own count is what holds.
func (l *limit[K]) fetch(ctx context.Context, b *bucket, who K) {
	used := b.held == 0 && time.Now().Before(b.until)
	if b.batch *= 2; !used {
		b.batch = 1
	}
	b.batch = max(1, min(b.batch, l.rate/batchesPerSecond))
	b.held = 1
	_ = l.link.Do(ctx, func(ctx context.Context, r redis.UniversalClient) error {
		shared := redis_rate.NewLimiter(r)
		terms := redis_rate.Limit{Rate: l.rate, Burst: l.burst, Period: time.Second}
		name := l.name + ":" + l.nameOf(who)
		result, err := shared.AllowN(ctx, name, terms, b.batch)
		if err == nil && result.Allowed == 0 && b.batch > 1 { // it is all of them or none
			b.batch = 1
			result, err = shared.AllowN(ctx, name, terms, 1)
		}
		if err != nil {
			return err
		}
		b.held, b.until = result.Allowed, time.Now().Add(holding)
		if b.held == 0 {
			b.wait = time.Now().Add(result.RetryAfter)
		}
		return nil
	})
}

// refusal is the fault of who is over a limit.
type refusal struct {
	fault         *fault.Error
	policy, state string // header fields
}

func (r *refusal) Error() string { return r.fault.Error() }
func (r *refusal) Unwrap() error { return r.fault }

// refuse says which limit it was, as the IETF's RateLimit header fields for HTTP do.
func (l *limit[K]) refuse(wait time.Duration) *refusal {
	f := fault.New(fault.TooManyRequests, "More than %d requests a second.", l.rate)
	f.RetryAfter = wait
	return &refusal{f,
		fmt.Sprintf("%q;q=%d;w=%d", l.name, l.burst, max(1, (l.burst+l.rate-1)/l.rate)),
		fmt.Sprintf("%q;r=0;t=%d", l.name, int(math.Ceil(wait.Seconds())))}
}

func (r *refusal) declare(h http.Header) {
	h.Set("RateLimit-Policy", r.policy)
	h.Set("RateLimit", r.state)
}
