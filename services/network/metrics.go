package network

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ironplane/ironplane/pkg/service"
)

// The entities of all groups by status, from the counts and the deltas that are not folded yet.
const (
	totalSQL = `
		WITH counted AS (
			SELECT (SELECT coalesce(sum(entities), 0) FROM ip_group_count) + (SELECT coalesce(sum(entities), 0) FROM ip_group_delta) AS entities,
				(SELECT coalesce(sum(free), 0) FROM ip_free_count) + (SELECT coalesce(sum(free), 0) FROM ip_free_delta) AS free,
				(SELECT coalesce(sum(reserved), 0) FROM ip_held_count) + (SELECT coalesce(sum(reserved), 0) FROM ip_held_delta) AS reserved,
				(SELECT coalesce(sum(quarantined), 0) FROM ip_held_count) + (SELECT coalesce(sum(quarantined), 0) FROM ip_held_delta) AS quarantined,
				(SELECT count(*) FROM ip_assignment WHERE available_at <= now()) AS due)
		SELECT `
	totalFromSQL = `::float8 FROM counted`
)

// Metrics returns the service's metrics. Every instance reports the same values.
func (s *Service) Metrics() []prometheus.Collector {
	total := func(name, help, sum string) prometheus.Collector {
		return service.Gauge(s.db, name, help, totalSQL+"("+sum+")"+totalFromSQL)
	}
	return []prometheus.Collector{
		total("ironplane_ip_entities_available", "IP entities that can be allocated.", "free + due"),
		total("ironplane_ip_entities_assigned", "IP entities with an owner.", "entities - free - reserved - quarantined"),
		total("ironplane_ip_entities_reserved", "IP entities that are set aside.", "reserved"),
		total("ironplane_ip_entities_quarantined", "Released IP entities whose quarantine has not ended.", "quarantined - due"),
	}
}
