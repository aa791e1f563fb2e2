package service

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
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

// gauges are metrics that one query returns when they are collected.
type gauges struct {
	db    pg.Querier
	descs map[string]*prometheus.Desc // by name
	sql   string
}

// GaugeDesc describes a metric of Gauges.
type GaugeDesc struct {
	Name, Help string
	Labels     []string
}

// Gauges returns metrics that have labels. The query returns a row for each value: the metric's name, an array with the values of
// its labels, and the value. The query bounds how many rows there are. If it fails, there are no metrics.
func Gauges(db pg.Querier, sql string, descs ...GaugeDesc) prometheus.Collector {
	g := gauges{db, map[string]*prometheus.Desc{}, sql}
	for _, d := range descs {
		g.descs[d.Name] = prometheus.NewDesc(d.Name, d.Help, d.Labels, nil)
	}
	return g
}

func (g gauges) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range g.descs {
		to <- desc
	}
}

func (g gauges) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), gaugeTimeout)
	defer cancel()
	rows, err := g.db.Query(ctx, g.sql)
	if err != nil {
		return
	}
	values, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
		Name   string
		Labels []string
		Value  float64
	}])
	if err != nil {
		return
	}
	for _, v := range values {
		to <- prometheus.MustNewConstMetric(g.descs[v.Name], prometheus.GaugeValue, v.Value, v.Labels...)
	}
}
