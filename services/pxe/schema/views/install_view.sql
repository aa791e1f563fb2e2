CREATE OR REPLACE VIEW install_view AS
SELECT i.id, i.version, i.host_hostname AS name, i.status, i.step, i.progress, i.error, i.attempt, i.created_at, i.started_at, i.finished_at, i.seen_at,
	CASE WHEN i.status IN ('cancelled', 'failed') AND i.revision > d.pushed
			THEN format('The agent of DHCP server %s (%s) does not know of this yet. Until then the machine may start its installer.', i.dhcp_server_id, i.dhcp_server_name)
		WHEN i.status <> 'waiting' THEN NULL
		WHEN i.held THEN format('Client %s (%s) is suspended. The install waits until that is lifted.', i.client_id, c.name)
		WHEN NOT i.granted THEN format('File server %s (%s) is full: it serves at most %s at a time.', f.id, f.name, f.install_max_concurrent)
			|| coalesce((SELECT format(' Waiting installs whose agent cannot be reached hold %s of the slots until they are cancelled.', count(*)) FROM install o JOIN site_agent s ON s.kind = 'pxe/dhcp' AND s.id = o.dhcp_server_id
				WHERE o.file_server_id = f.id AND o.granted AND o.status = 'waiting' AND s.error IS NOT NULL HAVING count(*) > 0), '')
		WHEN d.error IS NOT NULL THEN format('The agent of DHCP server %s (%s) cannot be reached.', i.dhcp_server_id, i.dhcp_server_name)
		WHEN d.seen_at IS NULL THEN format('The agent of DHCP server %s (%s) has not answered yet.', i.dhcp_server_id, i.dhcp_server_name)
		WHEN d.machines_url = '' THEN format('The agent of DHCP server %s (%s) does not serve machines.', i.dhcp_server_id, i.dhcp_server_name)
		WHEN f.id IS NOT NULL AND a.seen_at IS NULL THEN format('The agent of file server %s (%s) has not answered yet.', f.id, f.name)
	END AS reason,
	i.profile_id, i.profile_name, i.host_macs, i.host_hostname, i.host_disk, i.host_firmware, i.host_nameservers,
	i.host_ipv4_address, i.host_ipv4_gateway, i.host_ipv6_address, i.host_ipv6_gateway, i.host_vlan,
	i.host_entity_id, e.name AS host_entity_name, i.client_id, c.name AS client_name, i.dhcp_server_id, i.dhcp_server_name, i.file_server_id, i.file_server_name,
	i.ssh_keys, i.variables, i.search,
	(SELECT coalesce(jsonb_agg(jsonb_build_object('at', jsonb_build_object('unix', extract(epoch FROM q.at)::bigint), 'what', q.what, 'got', q.got, 'mac', q.mac, 'address', q.address)
		ORDER BY q.n DESC), '[]') FROM install_request q WHERE q.install_id = i.id) AS requests,
	i.forced,
	(SELECT coalesce(jsonb_agg(jsonb_build_object('statement', r.statement, 'signature', r.signature) ORDER BY r.id), '[]') FROM install_report r
		WHERE r.install_id = i.id) AS reports
FROM install i
JOIN ref e ON e.type = i.host_entity_type AND e.id = i.host_entity_id
LEFT JOIN ref c ON c.type = i.client_type AND c.id = i.client_id
LEFT JOIN file_server f ON f.id = i.file_server_id
LEFT JOIN site_agent d ON d.kind = 'pxe/dhcp' AND d.id = i.dhcp_server_id
LEFT JOIN site_agent a ON a.kind = 'pxe/file' AND a.id = i.file_server_id;
