package pxe

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/service"
)

// maxAgentSeries is how many agents have series of their own. Those that do not work come first.
const maxAgentSeries = 500

// metricsSQL selects the metrics of sites. Finished installs count for a day.
var metricsSQL = `WITH agent AS (
	SELECT replace(a.kind, 'pxe/', '') AS kind, a.id, coalesce(d.name, f.name) AS name, h.status,
		a.error, a.seen_at, a.heard_at, a.free_bytes, a.total_bytes, row_number() OVER (ORDER BY h.status = 'ok', a.kind, a.id) AS n
	FROM site_agent a JOIN site_agent_health h USING (kind, id)
	LEFT JOIN dhcp_server d ON a.kind = 'pxe/dhcp' AND d.id = a.id LEFT JOIN file_server f ON a.kind = 'pxe/file' AND f.id = a.id
	WHERE coalesce(d.id, f.id) IS NOT NULL)
SELECT v.metric, ARRAY[kind, id::text, name], v.value::float8 FROM agent, LATERAL (VALUES
	('ironplane_site_agent_up', (error IS NULL AND seen_at IS NOT NULL)::integer::float8),
	('ironplane_site_agent_failing', (status = 'failing')::integer),
	('ironplane_site_agent_last_contact_timestamp_seconds', extract(epoch FROM seen_at)),
	('ironplane_site_agent_feed_lag_seconds', extract(epoch FROM now() - heard_at)),
	('ironplane_site_agent_disk_free_bytes', free_bytes),
	('ironplane_site_agent_disk_bytes', total_bytes)) v (metric, value)
	WHERE n <= ` + strconv.Itoa(maxAgentSeries) + ` AND v.value IS NOT NULL
UNION ALL SELECT 'ironplane_site_agents', ARRAY[k, s], (SELECT count(*) FROM agent WHERE kind = k AND status = s)
	FROM unnest(ARRAY['dhcp', 'file']) k, unnest(ARRAY['ok', 'degraded', 'failing', 'unknown']) s
UNION ALL SELECT 'ironplane_file_syncs', ARRAY[s], (SELECT count(*) FROM file_sync WHERE status = s)
	FROM unnest(ARRAY['waiting', 'running', 'retrying', 'done', 'failed']) s
UNION ALL SELECT 'ironplane_installs', ARRAY[s], (SELECT count(*) FROM install WHERE status = s) FROM unnest(ARRAY['waiting', 'booting', 'installing']) s
UNION ALL SELECT 'ironplane_installs', ARRAY[s], (SELECT count(*) FROM install
		WHERE status = s AND created_at > now() - interval '7 days' AND finished_at > now() - interval '1 day')
	FROM unnest(ARRAY['installed', 'failed', 'cancelled']) s
UNION ALL SELECT 'ironplane_installs_oldest_waiting_seconds', '{}', coalesce(extract(epoch FROM now() - min(stage_at)), 0)
	FROM install WHERE status = 'waiting' AND NOT held`

// metrics returns the metrics of sites and installs. They are read with one query.
func metrics(db pg.Querier) []prometheus.Collector {
	agent := []string{"kind", "id", "name"}
	return []prometheus.Collector{service.Gauges(db, metricsSQL,
		service.GaugeDesc{
			Name:   "ironplane_site_agents",
			Help:   "Agents at the sites, by the kind of server (dhcp or file) and the health that the API shows.",
			Labels: []string{"kind", "status"},
		},
		service.GaugeDesc{Name: "ironplane_site_agent_up", Help: "1 if the agent answered the last request.", Labels: agent},
		service.GaugeDesc{
			Name:   "ironplane_site_agent_failing",
			Help:   "1 if the agent does not answer, its disk is full, or it says that it cannot work.",
			Labels: agent,
		},
		service.GaugeDesc{Name: "ironplane_site_agent_last_contact_timestamp_seconds", Help: "When the agent last answered.", Labels: agent},
		service.GaugeDesc{
			Name: "ironplane_site_agent_feed_lag_seconds", Help: "How long ago the agent's feed was last read to its end.", Labels: agent,
		},
		service.GaugeDesc{
			Name: "ironplane_site_agent_disk_free_bytes", Help: "Free bytes on the disk with the agent's files.", Labels: agent,
		},
		service.GaugeDesc{Name: "ironplane_site_agent_disk_bytes", Help: "Size of the disk with the agent's files.", Labels: agent},
		service.GaugeDesc{
			Name: "ironplane_file_syncs", Help: "File servers, by what became of their last sync.", Labels: []string{"status"},
		},
		service.GaugeDesc{
			Name: "ironplane_installs", Help: "Installs by status. Finished ones count for a day.", Labels: []string{"status"},
		},
		service.GaugeDesc{
			Name: "ironplane_installs_oldest_waiting_seconds",
			Help: "How long the oldest waiting install that is not held has been waiting; 0 if none is.",
		},
	)}
}
