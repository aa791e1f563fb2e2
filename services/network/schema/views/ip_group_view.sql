CREATE OR REPLACE VIEW ip_group_view AS
SELECT g.id, g.version, g.name, g.billing_id, g.reserved, g.search,
	coalesce(c.entities, 0) + coalesce((SELECT sum(d.entities) FROM ip_group_delta d WHERE d.group_id = g.id), 0)::bigint AS entities_count,
	coalesce(c.servers, 0) + coalesce((
		SELECT sum((coalesce(s.entities, 0) + d.entities > 0)::int - (coalesce(s.entities, 0) > 0)::int)
		FROM (SELECT group_id, server_id, sum(entities) AS entities FROM ip_group_server_delta WHERE group_id = g.id GROUP BY group_id, server_id) d
		LEFT JOIN ip_group_server_count s USING (group_id, server_id)), 0)::bigint AS servers_count,
	0::bigint AS servers_inventory,
	g.pxe_dhcp_server_id, r.name AS pxe_dhcp_server_name
FROM ip_group g
LEFT JOIN ip_group_count c ON c.group_id = g.id
LEFT JOIN ref r ON r.type = g.pxe_dhcp_server_type AND r.id = g.pxe_dhcp_server_id;
