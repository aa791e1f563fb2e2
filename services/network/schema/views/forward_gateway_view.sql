CREATE OR REPLACE VIEW forward_gateway_view AS
SELECT f.id, f.version, f.name, f.hostname, f.port_limit, f.group_ids, f.search, (
	SELECT coalesce(jsonb_agg(jsonb_build_object('id', g.id, 'name', g.name) ORDER BY g.id), '[]') FROM ip_group g WHERE g.id = ANY (f.group_ids)) AS groups
FROM forward_gateway f;
