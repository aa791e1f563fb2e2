CREATE OR REPLACE VIEW site_agent_health AS
SELECT kind, id,
	CASE WHEN failure IS NOT NULL THEN 'failing' WHEN seen_at IS NULL THEN 'unknown' WHEN free_bytes < total_bytes / 20 THEN 'degraded' ELSE 'ok' END AS status,
	failure
FROM (SELECT kind, id, seen_at, free_bytes, total_bytes, coalesce(error, nullif(array_to_string(problems, '; '), ''),
		-- An agent of an earlier version reports no problems. The number is siteagent.MinFreeBytes.
		CASE WHEN free_bytes < 67108864 THEN format('the disk is full: %s MB are free', free_bytes / 1000000) END) AS failure
	FROM site_agent) a;
