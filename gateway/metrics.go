package gateway

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ironplane/ironplane/pkg/runtime/tracing"
)

// metrics holds the gateway's metrics.
type metrics struct {
	requests *prometheus.HistogramVec
	limits   *prometheus.CounterVec
	lookups  struct{ memory, redis, owner, stale prometheus.Counter }
	all      []prometheus.Collector
}

func newMetrics(redisUp func() bool) *metrics {
	m := &metrics{
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ironplane_gateway_request_seconds", Help: "Time from a request's header to the end of its response.",
			Buckets: []float64{.001, .003, .01, .03, .1, .3, 1, 3, 10, 30},
		}, []string{"service", "method", "route", "status"}),
		limits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ironplane_gateway_limit_total", Help: "Requests that the limits allowed or refused.",
		}, []string{"limit", "decision"}),
	}
	lookups := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ironplane_gateway_lookups_total",
		Help: "Look-ups of keys and owners, by source: memory (both at once), redis, the owning service, or a stale entry in its place.",
	}, []string{"from"})
	m.lookups.memory, m.lookups.redis = lookups.WithLabelValues("memory"), lookups.WithLabelValues("redis")
	m.lookups.owner, m.lookups.stale = lookups.WithLabelValues("owner"), lookups.WithLabelValues("stale")
	up := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ironplane_gateway_redis_up", Help: "Whether Redis answered when it was last asked.",
	}, func() float64 {
		if redisUp() {
			return 1
		}
		return 0
	})
	m.all = []prometheus.Collector{m.requests, m.limits, lookups, up}
	return m
}

// Metrics returns the gateway's metrics.
func (g *Gateway) Metrics() []prometheus.Collector { return g.metrics.all }

// methods are the methods that logs and metrics name. All others count as "other", because a caller may invent any number.
var methods = map[string]bool{"GET": true, "HEAD": true, "POST": true, "PATCH": true, "PUT": true, "DELETE": true, "OPTIONS": true}

func (m *metrics) observe(ctx context.Context, e *recorder, elapsed time.Duration) {
	tracing.Observe(ctx, m.requests.WithLabelValues(e.service, e.method, e.route, statusClass(e.status)), elapsed.Seconds())
}

func statusClass(status int) string {
	classes := [...]string{"none", "1xx", "2xx", "3xx", "4xx", "5xx"}
	if class := status / 100; class > 0 && class < len(classes) {
		return classes[class]
	}
	return classes[0]
}
