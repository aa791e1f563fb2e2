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
		"How far a consumer is behind another service: the age of the oldest change that is not applied, or since when the service "+
			"cannot be asked.",
		[]string{"source", "consumer"},
		nil,
	)
	foreignDesc = prometheus.NewDesc(
		"ironplane_events_foreign",
		"1 if another service no longer has changes that are applied here: it was restored from a backup.",
		[]string{"source", "consumer"},
		nil,
	)
	stoppedDesc = prometheus.NewDesc(
		"ironplane_events_stopped",
		"The number of the change that cannot be applied; 0 if there is none.",
		[]string{"source", "consumer"},
		nil,
	)
)

// consumerMetrics returns the metrics of what consumers have not applied.
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
		if s.Since.IsZero() { // not started yet
			continue
		}
		to <- prometheus.MustNewConstMetric(behindDesc, prometheus.GaugeValue, float64(s.Behind), c.Source, c.Name)
		late := 0.0
		if s.Behind > 0 || s.Reason != nil { // otherwise all changes are applied
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
