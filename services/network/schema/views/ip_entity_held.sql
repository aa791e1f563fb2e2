-- What of ip_entity_view a list asks for, from the side of what is reserved or was released. It never has an owner.
CREATE OR REPLACE VIEW ip_entity_held AS
SELECT a.entity_id AS id, a.group_id, coalesce(e.v4_first, e.v6_first) AS first_address, false AS assigned,
	NULL::bigint AS owner_id, NULL::bigint AS owner_server_id, NULL::text AS owner_search,
	a.entity_name AS name, e.billing_id, a.vlan, e.search, e.v4_span, e.v6_span, e.v4_first, e.v4_last, e.v4_scope, e.v6_first, e.v6_last, e.v6_scope,
	NULL::boolean AS owner_missing, a.available_at AS released_until,
	CASE WHEN a.available_at IS NULL THEN 'reserved' WHEN a.available_at > now() THEN 'quarantined' ELSE 'available' END AS status,
	NULL::bigint AS owner_via_id
FROM ip_assignment a LEFT JOIN ip_entity e ON e.id = a.entity_id WHERE a.owner_id IS NULL;
