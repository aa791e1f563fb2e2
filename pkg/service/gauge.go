package service

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// gaugeTimeout is how long the query of a gauge may take.
const gaugeTimeout = time.Second

// gauge is a metric that runs a query when it is collected.
type gauge struct {
	db   pg.Querier
	desc *prometheus.Desc
	sql  string
}

// Gauge returns a metric with the result of a query. If the query fails or returns NULL, there is no metric.
func Gauge(db pg.Querier, name, help, sql string) prometheus.Collector {
	return gauge{db, prometheus.NewDesc(name, help, nil, nil), sql}
}

func (g gauge) Describe(to chan<- *prometheus.Desc) { to <- g.desc }

func (g gauge) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), gaugeTimeout)
	defer cancel()
	var value *float64
	if err := g.db.QueryRow(ctx, g.sql).Scan(&value); err == nil && value != nil {
		to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, *value)
	}
}
