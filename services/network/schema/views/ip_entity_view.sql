-- A single address is shown as a range that ends where it begins.
CREATE OR REPLACE VIEW ip_entity_view AS
SELECT e.id, e.version, e.name, e.nickname, e.billing_id, e.vlan, e.full_ip, e.search, e.v4_span, e.v6_span,
	v4.address, v4.gateway, v4.subnet_mask, v6.address AS v6_address, v6.gateway AS v6_gateway,
	v4.address AS v4_address, CASE WHEN e.v4_first IS NOT NULL THEN e.full_ip END AS v4_full, v4.gateway AS v4_gateway, v4.range_end AS v4_range_end, v4.subnet_mask AS v4_subnet_mask, v4.given_mask AS v4_given_mask,
	e.group_id, g.name AS group_name,
	a.owner_id, a.owner_name, a.server_id AS owner_server_id, a.server_name AS owner_server_name,
	CASE WHEN a.server_id IS NULL THEN 0 ELSE (SELECT count(*) - 1 FROM ip_assignment o WHERE o.server_id = a.server_id) END AS siblings_count,
	a.search AS owner_search,
	e.v4_first, e.v4_last, e.v4_scope, e.v6_first, e.v6_last, e.v6_scope,
	CASE WHEN e.v4_bits IS NULL AND e.v4_last > e.v4_first THEN host(e.v4_last) END AS v4_given_range_end,
	coalesce(e.v4_first, e.v6_first) AS first_address, a.owner_id IS NOT NULL AS assigned,
	CASE WHEN a.owner_id IS NOT NULL THEN a.owner_missing END AS owner_missing,
	CASE WHEN a.entity_id IS NULL THEN 'available' WHEN a.owner_id IS NOT NULL THEN 'assigned' WHEN a.available_at IS NULL THEN 'reserved'
		WHEN a.available_at > now() THEN 'quarantined' ELSE 'available' END AS status,
	a.note, CASE WHEN a.available_at > now() THEN a.available_at END AS available_at,
	a.via_id AS owner_via_id, via.name AS owner_via_name
FROM ip_entity e
LEFT JOIN ip_group g ON g.id = e.group_id -- LEFT lets the planner leave out what is not asked for
LEFT JOIN ip_assignment a ON a.entity_id = e.id
LEFT JOIN ref via ON via.type = 'client' AND via.id = a.via_id
CROSS JOIN LATERAL (SELECT
	host(e.v4_first) || coalesce('/' || e.v4_bits, '') AS address,
	host(e.v4_router) AS gateway,
	CASE WHEN e.v4_bits IS NULL THEN host(e.v4_last) END AS range_end,
	host(netmask(set_masklen('0.0.0.0'::inet, coalesce(e.v4_bits, e.v4_mask)))) AS subnet_mask,
	host(netmask(set_masklen('0.0.0.0'::inet, e.v4_mask))) AS given_mask) v4
CROSS JOIN LATERAL (SELECT
	host(e.v6_first) || coalesce('/' || e.v6_bits, '') AS address,
	host(e.v6_router) AS gateway) v6;
