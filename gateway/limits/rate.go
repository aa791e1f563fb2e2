// Package limits bounds what each caller may use of a gateway: requests a second, requests at the same time, and memory.
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
	// batchTTL is how long requests that Redis granted can be used. After that time the limit in Redis has recovered by as many.
	batchTTL = time.Second
	// batchesPerSecond is how often a busy gateway asks Redis for requests of one caller.
	batchesPerSecond = 10
	// maxBuckets bounds how many callers are counted in memory. A caller without requests is dropped after bucketTTL.
	maxBuckets = 100_000
	bucketTTL  = time.Minute
)

// Rate bounds how many requests a second each caller may make.
//
// Requests are counted twice. Redis counts for all gateways and grants requests in batches, so that few requests wait for it. Each
// gateway also counts its own requests, with the same limit. So while Redis is away, callers have at most the limit times the
// number of gateways.
type Rate[K comparable] struct {
	name        string
	config      atomic.Pointer[rateConfig]
	callerName  func(K) string
	link        *cache.Link
	buckets     *otter.Cache[K, *bucket]
	statePrefix string // of the RateLimit header
	allowed     prometheus.Counter
	refused     prometheus.Counter
}

// rateConfig is the size of a limit.
type rateConfig struct {
	rate, burst int           // requests a second, requests at once
	interval    time.Duration // between two requests at the rate
	maxAhead    time.Duration // how far count.due may lie in the future
	policy      []string      // the RateLimit-Policy header
}

// bucket is the count of one caller.
type bucket struct {
	mu sync.Mutex
	count
}

// count is what a caller has used under one configuration of the limit.
type count struct {
	config       *rateConfig
	due          time.Time // when all allowed requests would be due at the limit's rate (GCRA)
	granted      int       // by Redis, and not used yet
	remaining    int       // what Redis would have granted beyond that
	grantedUntil time.Time // when granted requests expire
	batch        int       // the size of the last batch
	blockedUntil time.Time // Redis grants nothing before
}

// NewRate returns a limit that allows nothing until Set. The counters count allowed and refused requests.
func NewRate[K comparable](name string, callerName func(K) string, link *cache.Link, allowed, refused prometheus.Counter) *Rate[K] {
	return &Rate[K]{
		name: name, callerName: callerName, link: link, statePrefix: strconv.Quote(name) + ";r=",
		buckets: otter.Must(&otter.Options[K, *bucket]{
			MaximumSize:      maxBuckets,
			ExpiryCalculator: otter.ExpiryAccessing[K, *bucket](bucketTTL),
		}),
		allowed: allowed,
		refused: refused,
	}
}

// Set changes the limit: requests a second, and requests at once. Counts under the previous limit are dropped.
func (l *Rate[K]) Set(rate, burst int) {
	if now := l.config.Load(); now != nil && now.rate == rate && now.burst == burst {
		return
	}
	interval := time.Second / time.Duration(rate)
	l.config.Store(
		&rateConfig{
			rate,
			burst,
			interval,
			time.Duration(burst) * interval,
			[]string{fmt.Sprintf("%q;q=%d;w=%d", l.name, burst, (burst+rate-1)/rate)},
		},
	)
}

// Take counts one request of a caller, and sets the RateLimit headers. The error is a 429 with Retry-After.
func (l *Rate[K]) Take(ctx context.Context, header http.Header, caller K) error {
	b, t := l.findBucket(caller), l.config.Load()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.config != t {
		b.count = count{config: t}
	}
	header["Ratelimit-Policy"] = t.policy
	now := time.Now()
	wait := t.wait(b, now)
	if wait <= 0 && (b.granted == 0 || now.After(b.grantedUntil)) {
		l.fetchBatch(ctx, t, b, caller)
		now = time.Now()
		wait = t.wait(b, now)
	}
	if wait > 0 {
		l.refused.Inc()
		l.writeHeader(header, 0, ";t="+strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		f := problem.New(problem.TooManyRequests, "The limit of %d requests a second is exceeded. Wait as long as Retry-After says.", t.rate)
		f.RetryAfter = wait
		return f
	}
	l.allowed.Inc()
	b.granted--
	if b.due.Before(now) {
		b.due = now
	}
	b.due = b.due.Add(t.interval)
	own := int((t.maxAhead - b.due.Sub(now)) / t.interval)
	l.writeHeader(header, min(own, b.granted+b.remaining), "")
	return nil
}

// writeHeader sets the RateLimit header, as the IETF's draft defines it.
func (l *Rate[K]) writeHeader(header http.Header, remaining int, reset string) {
	header["Ratelimit"] = []string{l.statePrefix + strconv.Itoa(remaining) + reset}
}

// Refund undoes a Take.
func (l *Rate[K]) Refund(caller K) {
	b := l.findBucket(caller)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.granted++
	if b.config != nil {
		b.due = b.due.Add(-b.config.interval)
	}
}

func (l *Rate[K]) findBucket(caller K) *bucket {
	if b, ok := l.buckets.GetIfPresent(caller); ok {
		return b
	}
	b, _ := l.buckets.SetIfAbsent(caller, &bucket{})
	return b
}

// wait returns how long no request is allowed.
func (t *rateConfig) wait(b *bucket, now time.Time) time.Duration {
	return max(max(0, b.due.Sub(now))+t.interval-t.maxAhead, b.blockedUntil.Sub(now))
}

// fetchBatch asks Redis for a batch: twice as many as last time, if those were used in time. While Redis is away, the gateway's
// own count is the limit.
func (l *Rate[K]) fetchBatch(ctx context.Context, t *rateConfig, b *bucket, caller K) {
	used := b.granted == 0 && time.Now().Before(b.grantedUntil)
	if b.batch *= 2; !used {
		b.batch = 1
	}
	b.batch = max(1, min(b.batch, t.rate/batchesPerSecond))
	b.granted, b.remaining = 1, t.burst
	_ = l.link.Do(ctx, func(ctx context.Context, r redis.UniversalClient) error {
		shared := redis_rate.NewLimiter(r)
		terms := redis_rate.Limit{Rate: t.rate, Burst: t.burst, Period: time.Second}
		name := fmt.Sprintf("%s:%s:%d/%d", l.name, l.callerName(caller), t.rate, t.burst)
		result, err := shared.AllowN(ctx, name, terms, b.batch)
		if err == nil && result.Allowed == 0 && b.batch > 1 { // Redis grants all of a batch or nothing
			b.batch = 1
			result, err = shared.AllowN(ctx, name, terms, 1)
		}
		if err != nil {
			return err
		}
		b.granted, b.remaining, b.grantedUntil = result.Allowed, result.Remaining, time.Now().Add(batchTTL)
		if b.granted == 0 {
			b.blockedUntil = time.Now().Add(result.RetryAfter)
		}
		return nil
	})
}
