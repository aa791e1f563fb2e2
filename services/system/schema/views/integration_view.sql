CREATE OR REPLACE VIEW integration_view AS
SELECT i.id, i.version, i.name, i.subject, i.body, i.disabled, i.search, coalesce(n.clients, 0) AS clients, coalesce(n.keys, 0) AS keys,
	(SELECT count(DISTINCT split_part(p, ' ', 1)) FROM unnest(i.permissions) p) AS permissions, i.detaching,
	coalesce(n.servers, 0) AS servers
FROM integration i LEFT JOIN integration_count n ON n.id = i.id;
