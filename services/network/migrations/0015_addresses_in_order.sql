-- +goose Up
-- Entities are sorted by address and found by the beginning of one, and those that are free by themselves. inet is in the
-- order of numbers, v4 before v6; an entity with both stands by its v4.
CREATE INDEX ip_entity_by_address ON ip_entity (coalesce(v4_first, v6_first), id);
CREATE INDEX ip_entity_by_group_and_address ON ip_entity (group_id, coalesce(v4_first, v6_first), id);
DROP INDEX ip_entity_by_v4;

CREATE INDEX ip_free_by_group ON ip_free (group_id, entity_id);
CREATE INDEX ip_free_by_group_and_address ON ip_free (group_id, coalesce(v4_first, v6_first), entity_id);

CREATE INDEX forward_gateway_by_group ON forward_gateway USING gin (group_ids);

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
	coalesce(e.v4_first, e.v6_first) AS first_address, a.entity_id IS NOT NULL AS assigned
FROM ip_entity e
LEFT JOIN ip_group g ON g.id = e.group_id -- LEFT lets the planner leave out what is not asked for
LEFT JOIN ip_assignment a ON a.entity_id = e.id
CROSS JOIN LATERAL (SELECT
	host(e.v4_first) || coalesce('/' || e.v4_bits, '') AS address,
	host(e.v4_router) AS gateway,
	CASE WHEN e.v4_bits IS NULL THEN host(e.v4_last) END AS range_end,
	host(netmask(set_masklen('0.0.0.0'::inet, coalesce(e.v4_bits, e.v4_mask)))) AS subnet_mask,
	host(netmask(set_masklen('0.0.0.0'::inet, e.v4_mask))) AS given_mask) v4
CROSS JOIN LATERAL (SELECT
	host(e.v6_first) || coalesce('/' || e.v6_bits, '') AS address,
	host(e.v6_router) AS gateway) v6;

CREATE OR REPLACE VIEW ip_entity_of_owner AS
SELECT a.entity_id AS id, a.owner_id, a.server_id AS owner_server_id, a.group_id, a.entity_name AS name, a.vlan, a.search AS owner_search,
	e.billing_id, e.search, e.v4_span, e.v6_span, e.v4_first, e.v4_last, e.v4_scope, e.v6_first, e.v6_last, e.v6_scope, true AS assigned
FROM ip_assignment a LEFT JOIN ip_entity e ON e.id = a.entity_id;

-- What of ip_entity_view a list asks for, from the side of what is free. An owner it never has.
CREATE VIEW ip_entity_free AS
SELECT f.entity_id AS id, f.group_id, coalesce(f.v4_first, f.v6_first) AS first_address, false AS assigned,
	NULL::bigint AS owner_id, NULL::bigint AS owner_server_id, NULL::text AS owner_search,
	e.name, e.billing_id, e.vlan, e.search, e.v4_span, e.v6_span, e.v4_first, e.v4_last, e.v4_scope, e.v6_first, e.v6_last, e.v6_scope
FROM ip_free f LEFT JOIN ip_entity e ON e.id = f.entity_id;
