-- What of ip_entity_view a list asks for, from the side of what is free. It never has an owner.
CREATE OR REPLACE VIEW ip_entity_free AS
SELECT f.entity_id AS id, f.group_id, coalesce(f.v4_first, f.v6_first) AS first_address, false AS assigned,
	NULL::bigint AS owner_id, NULL::bigint AS owner_server_id, NULL::text AS owner_search,
	e.name, e.billing_id, e.vlan, e.search, e.v4_span, e.v6_span, e.v4_first, e.v4_last, e.v4_scope, e.v6_first, e.v6_last, e.v6_scope,
	NULL::boolean AS owner_missing, 'available' AS status, NULL::bigint AS owner_via_id
FROM ip_free f LEFT JOIN ip_entity e ON e.id = f.entity_id;
