-- What of ip_entity_view a list asks for, from the assignment's side.
CREATE OR REPLACE VIEW ip_entity_of_owner AS
SELECT a.entity_id AS id, a.owner_id, a.server_id AS owner_server_id, a.group_id, a.entity_name AS name, a.vlan, a.search AS owner_search,
	e.billing_id, e.search, e.v4_span, e.v6_span, e.v4_first, e.v4_last, e.v4_scope, e.v6_first, e.v6_last, e.v6_scope, true AS assigned,
	a.owner_missing, 'assigned' AS status, coalesce(e.v4_first, e.v6_first) AS first_address, a.via_id AS owner_via_id
FROM ip_assignment a LEFT JOIN ip_entity e ON e.id = a.entity_id WHERE a.owner_id IS NOT NULL;
