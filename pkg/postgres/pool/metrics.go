package pool

import "github.com/prometheus/client_golang/prometheus"

var (
	connectionsNow = prometheus.NewDesc(
		"ironplane_database_connections",
		"Connections to the database, by state.",
		[]string{"state"},
		nil,
	)
	connectionsMax  = prometheus.NewDesc("ironplane_database_connections_max", "Largest number of connections to the database.", nil, nil)
	connectionWaits = prometheus.NewDesc(
		"ironplane_database_connection_wait_seconds_total",
		"Time that work waited for a connection to the database.",
		nil,
		nil,
	)
)

// Describe implements prometheus.Collector.
func (p *Pool) Describe(to chan<- *prometheus.Desc) {
	to <- connectionsNow
	to <- connectionsMax
	to <- connectionWaits
	p.conflicts.Describe(to)
}

// Collect implements prometheus.Collector.
func (p *Pool) Collect(to chan<- prometheus.Metric) {
	s := p.connections.Stat()
	for state, n := range map[string]int32{"used": s.AcquiredConns(), "idle": s.IdleConns(), "connecting": s.ConstructingConns()} {
		to <- prometheus.MustNewConstMetric(connectionsNow, prometheus.GaugeValue, float64(n), state)
	}
	to <- prometheus.MustNewConstMetric(connectionsMax, prometheus.GaugeValue, float64(s.MaxConns()))
	to <- prometheus.MustNewConstMetric(connectionWaits, prometheus.CounterValue, s.EmptyAcquireWaitTime().Seconds())
	p.conflicts.Collect(to)
}
