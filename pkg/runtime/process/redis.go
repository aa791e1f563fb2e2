package process

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/pkg/runtime/tracing"
	"github.com/ironplane/ironplane/pkg/secret"
)

// OpenRedis returns a client of the Redis that gateways and services share, with its check and metrics. The caller closes
// it.
func (o *Operations) OpenRedis(url secret.String) (*cache.Client, error) {
	client, err := cache.Open(url)
	if err != nil {
		return nil, fmt.Errorf("REDIS_URL: %w", err)
	}
	o.Check(health.Check{Name: "redis", Optional: true, Ask: func(ctx context.Context) error { return client.Ping(ctx).Err() }})
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "ironplane_redis_seconds", Help: "Time of a Redis command or pipeline, in seconds.",
		Buckets: []float64{.0003, .001, .003, .01, .03, .1, .3, 1, 3},
	}, []string{"outcome"})
	o.MustRegister(duration)
	client.AddHook(stopwatch{duration.WithLabelValues("ok"), duration.WithLabelValues("error")})
	if err := tracing.Redis(client.Client); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return client, nil
}

// CheckRedis returns a check that the Redis at REDIS_URL accepts this process.
func CheckRedis(url secret.String) health.Check {
	return health.Check{Name: "REDIS_URL: Redis answers", Ask: func(ctx context.Context) error {
		client, err := cache.Open(url)
		if err != nil {
			return err
		}
		defer client.Close()
		return client.Ping(ctx).Err()
	}}
}

// stopwatch measures a client's commands.
type stopwatch struct{ ok, failed prometheus.Observer }

func (s stopwatch) observe(ctx context.Context, began time.Time, err error) error {
	to := s.ok
	if err != nil && !errors.Is(err, redis.Nil) {
		to = s.failed
	}
	tracing.Observe(ctx, to, time.Since(began).Seconds())
	return err
}

func (s stopwatch) DialHook(next redis.DialHook) redis.DialHook {
	return next
}

func (s stopwatch) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		began := time.Now()
		return s.observe(ctx, began, next(ctx, command))
	}
}

func (s stopwatch) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		began := time.Now()
		return s.observe(ctx, began, next(ctx, commands))
	}
}
