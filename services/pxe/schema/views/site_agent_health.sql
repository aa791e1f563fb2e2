CREATE OR REPLACE VIEW site_agent_health AS
SELECT kind, id, CASE WHEN error IS NOT NULL THEN 'failing' WHEN seen_at IS NULL THEN 'unknown' WHEN free_bytes < total_bytes / 20 THEN 'degraded' ELSE 'ok' END AS status
FROM site_agent;
