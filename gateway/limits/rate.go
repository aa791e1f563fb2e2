// Package limits bounds what each caller may take of a gateway: requests a second, requests at the same time, and memory.
package limits

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/maypok86/otter/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/problem"
)

const (
	// batchTTL is how long requests that Redis allowed may be used. The limit has them back by then.
	batchTTL = time.Second
	// batchesPerSecond is how often the busiest caller's requests are asked for.
	batchesPerSecond = 10
	// maxBuckets bounds how many callers are counted in memory. A silent caller is forgotten after bucketTTL.
	maxBuckets = 100_000
	bucketTTL  = time.Minute
)

// Rate bounds how many requests a second each of many callers may make.
//
// Requests are counted twice. Redis counts for all gateways, and hands out requests in batches, so that few of them wait for
// it. Each gateway counts its own, with the same limit: while Redis is away, callers have at most as many times the limit as
// there are gateways.
type Rate[K comparable] struct {
	name    string
	terms   atomic.Pointer[terms]
	nameOf  func(K) string
	link    *cache.Link
	buckets *otter.Cache[K, *bucket]
	state   string // how the value of RateLimit begins
	allowed prometheus.Counter
	refused prometheus.Counter
}

// terms are how much a limit lets through.
type terms struct {
	rate, burst int           // requests a second, requests at once
	interval    time.Duration // between two requests at the rate
	ahead       time.Duration // how far what is due may lie in the future
	policy      []string      // the value of RateLimit-Policy
}

// bucket is one caller's count.
type bucket struct {
	mu sync.Mutex
	count
}

type count struct {
	by    *terms
	due   time.Time // when all that was let through would be due at the limit's rate (GCRA)
	held  int       // allowed by Redis, not made use of yet
	left  int       // what Redis would have allowed beyond that when it was last asked
	until time.Time // until when held may be
	batch int       // how many were asked for last
	wait  time.Time // until when Redis will allow none
}

// NewRate returns a limit that lets nothing through until Set. Its counters count what is allowed and what is refused.
func NewRate[K comparable](name string, nameOf func(K) string, link *cache.Link, allowed, refused prometheus.Counter) *Rate[K] {
	return &Rate[K]{
		name: name, nameOf: nameOf, link: link, state: strconv.Quote(name) + ";r=",
		buckets: otter.Must(&otter.Options[K, *bucket]{
			MaximumSize:      maxBuckets,
			ExpiryCalculator: otter.ExpiryAccessing[K, *bucket](bucketTTL),
		}),
		allowed: allowed,
		refused: refused,
	}
}

// Set changes the limit, in requests a second and at once. What was counted under another limit no longer counts.
func (l *Rate[K]) Set(rate, burst int) {
	if now := l.terms.Load(); now != nil && now.rate == rate && now.burst == burst {
		return
	}
	interval := time.Second / time.Duration(rate)
	l.terms.Store(
		&terms{rate, burst, interval, time.Duration(burst) * interval, []string{fmt.Sprintf("%q;q=%d;w=%d", l.name, burst, (burst+rate-1)/rate)}},
	)
}

// Take counts one request of a caller, and says in the answer's header what is left. The error is a 429 that says when to
// try again.
func (l *Rate[K]) Take(ctx context.Context, answer http.Header, who K) error {
	b, t := l.bucketOf(who), l.terms.Load()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.by != t {
		b.count = count{by: t}
	}
	answer["Ratelimit-Policy"] = t.policy
	now := time.Now()
	wait := t.wait(b, now)
	if wait <= 0 && (b.held == 0 || now.After(b.until)) {
		l.fetch(ctx, t, b, who)
		now = time.Now()
		wait = t.wait(b, now)
	}
	if wait > 0 {
		l.refused.Inc()
		l.declare(answer, 0, ";t="+strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		f := problem.New(problem.TooManyRequests, "More than %d requests a second.", t.rate)
		f.RetryAfter = wait
		return f
	}
	l.allowed.Inc()
	b.held--
	if b.due.Before(now) {
		b.due = now
	}
	b.due = b.due.Add(t.interval)
	own := int((t.ahead - b.due.Sub(now)) / t.interval)
	l.declare(answer, min(own, b.held+b.left), "")
	return nil
}

// declare says where a caller stands, as the IETF's RateLimit header field for HTTP does.
func (l *Rate[K]) declare(answer http.Header, left int, until string) {
	answer["Ratelimit"] = []string{l.state + strconv.Itoa(left) + until}
}

// GiveBack undoes a Take.
func (l *Rate[K]) GiveBack(who K) {
	b := l.bucketOf(who)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held++
	if b.by != nil {
		b.due = b.due.Add(-b.by.interval)
	}
}

func (l *Rate[K]) bucketOf(who K) *bucket {
	if b, ok := l.buckets.GetIfPresent(who); ok {
		return b
	}
	b, _ := l.buckets.SetIfAbsent(who, &bucket{})
	return b
}

// wait is for how long nothing is let through.
func (t *terms) wait(b *bucket, now time.Time) time.Duration {
	return max(max(0, b.due.Sub(now))+t.interval-t.ahead, b.wait.Sub(now))
}

// fetch has Redis allow a batch: twice as many as the last time, where those were made use of in time. Where Redis is
// away, our own count is what holds.
func (l *Rate[K]) fetch(ctx context.Context, t *terms, b *bucket, who K) {
	used := b.held == 0 && time.Now().Before(b.until)
	if b.batch *= 2; !used {
		b.batch = 1
	}
	b.batch = max(1, min(b.batch, t.rate/batchesPerSecond))
	b.held, b.left = 1, t.burst
	_ = l.link.Do(ctx, func(ctx context.Context, r redis.UniversalClient) error {
		shared := redis_rate.NewLimiter(r)
		terms := redis_rate.Limit{Rate: t.rate, Burst: t.burst, Period: time.Second}
		name := fmt.Sprintf("%s:%s:%d/%d", l.name, l.nameOf(who), t.rate, t.burst)
		result, err := shared.AllowN(ctx, name, terms, b.batch)
		if err == nil && result.Allowed == 0 && b.batch > 1 { // it is all of them or none
			b.batch = 1
			result, err = shared.AllowN(ctx, name, terms, 1)
		}
		if err != nil {
			return err
		}
		b.held, b.left, b.until = result.Allowed, result.Remaining, time.Now().Add(batchTTL)
		if b.held == 0 {
			b.wait = time.Now().Add(result.RetryAfter)
		}
		return nil
	})
}
