package share

import (
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// logInterval is how often one limit is logged at most.
const logInterval = time.Minute

// Refusals counts what limits refuse, and logs each limit once a minute at most. It is a collector of metrics.
type Refusals struct {
	counter *prometheus.CounterVec
	log     *slog.Logger

	mu     sync.Mutex
	limits map[string]*refused
}

// refused is what one limit has refused since its last line in the log.
type refused struct {
	loggedAt time.Time
	count    int
}

// NewRefusals returns a counter without refusals.
func NewRefusals(log *slog.Logger) *Refusals {
	return &Refusals{
		counter: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ironplane_site_agent_refused_total",
			Help: "Connections, requests and transfers that a limit of the site agent refused or dropped.",
		}, []string{"limit"}),
		log:    log,
		limits: map[string]*refused{},
	}
}

// Describe implements prometheus.Collector.
func (r *Refusals) Describe(into chan<- *prometheus.Desc) { r.counter.Describe(into) }

// Collect implements prometheus.Collector.
func (r *Refusals) Collect(into chan<- prometheus.Metric) { r.counter.Collect(into) }

// add counts a refusal. The first one is logged at once. Those of the next minute are logged with the first one after it.
func (r *Refusals) add(limit string, from netip.Addr) {
	r.counter.WithLabelValues(limit).Inc()
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.limits[limit]
	if one == nil {
		one = &refused{}
		r.limits[limit] = one
	}
	one.count++
	if now := time.Now(); now.Sub(one.loggedAt) >= logInterval {
		r.log.Warn("limit reached", "limit", limit, "refused", one.count, "last_address", from)
		one.loggedAt, one.count = now, 0
	}
}
