-- What a link shows of an account changes with it.
CREATE OR REPLACE VIEW super_link_view AS
SELECT l.id, CASE WHEN l.name IS NULL THEN g.version ELSE l.version END AS version, l.client_id, l.grantee_id, coalesce(l.name, g.name) AS grantee_name, coalesce(l.name, g.name) AS name,
	l.client_id AS granter_id, c.name AS granter_name
FROM super_link l JOIN client c ON c.id = l.client_id JOIN client g ON g.id = l.grantee_id;
