package host

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ironplane/ironplane/pkg/events"
)

var (
	behindDesc = prometheus.NewDesc(
		"ironplane_events_behind",
		"Changes of another service that are not applied yet.",
		[]string{"source", "consumer"},
		nil,
	)
	lagDesc = prometheus.NewDesc(
		"ironplane_events_lag_seconds",
		"Since when changes of another service may not be applied: how old the oldest is, or how long it cannot be asked.",
		[]string{"source", "consumer"},
		nil,
	)
	foreignDesc = prometheus.NewDesc(
		"ironplane_events_foreign",
		"1 where another service has not the changes any more that are applied here: it was restored.",
		[]string{"source", "consumer"},
		nil,
	)
	stoppedDesc = prometheus.NewDesc(
		"ironplane_events_stopped",
		"The number of the change of another service that cannot be applied; 0: there is none.",
		[]string{"source", "consumer"},
		nil,
	)
)

// consumerMetrics counts what consumers have not applied.
func consumerMetrics(consumers []*events.Consumer) prometheus.Collector {
	return consumerCollector(consumers)
}

type consumerCollector []*events.Consumer

func (consumerCollector) Describe(to chan<- *prometheus.Desc) {
	to <- behindDesc
	to <- lagDesc
	to <- foreignDesc
	to <- stoppedDesc
}

func (consumers consumerCollector) Collect(to chan<- prometheus.Metric) {
	for _, c := range consumers {
		s := c.Status()
		if s.Since.IsZero() { // it has not begun
			continue
		}
		to <- prometheus.MustNewConstMetric(behindDesc, prometheus.GaugeValue, float64(s.Behind), c.Source, c.Name)
		late := 0.0
		if s.Behind > 0 || s.Reason != nil { // else it has applied all, and is woken when there is more
			late = time.Since(s.Since).Seconds()
		}
		to <- prometheus.MustNewConstMetric(lagDesc, prometheus.GaugeValue, late, c.Source, c.Name)
		isForeign := 0.0
		if s.HistoryMismatch {
			isForeign = 1
		}
		to <- prometheus.MustNewConstMetric(foreignDesc, prometheus.GaugeValue, isForeign, c.Source, c.Name)
		to <- prometheus.MustNewConstMetric(stoppedDesc, prometheus.GaugeValue, float64(s.Stopped), c.Source, c.Name)
	}
}
