CREATE OR REPLACE VIEW sub_link_view AS
SELECT l.id, CASE WHEN l.kind = 'named' THEN l.version ELSE c.version END AS version, l.client_id, l.kind, n.name,
	l.child_id, n.name AS child_name, coalesce(l.email, c.email) AS child_email, coalesce(l.first, c.first) AS child_first, coalesce(l.last, c.last) AS child_last,
	CASE WHEN l.kind = 'named' THEN l.created_at ELSE c.created_at END AS child_created_at,
	CASE WHEN l.kind <> 'named' THEN c.integration_id END AS child_integration_id,
	CASE WHEN l.kind <> 'named' THEN c.integration_name END AS child_integration_name,
	l.client_id AS parent_id, p.name AS parent_name,
	CASE WHEN l.kind = 'named' THEN 0 ELSE c.servers_count END AS child_servers_count
FROM sub_link l JOIN client_view c ON c.id = l.child_id JOIN client p ON p.id = l.client_id
CROSS JOIN LATERAL (SELECT coalesce(l.first || ' ' || l.last, c.name) AS name) n;
