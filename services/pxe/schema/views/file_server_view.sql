CREATE OR REPLACE VIEW file_server_view AS
SELECT f.id, f.version, f.name, f.install_max_concurrent, f.group_id, r.name AS group_name, f.parent_id, p.name AS parent_name,
	f.http_host, f.http_port, f.http_use_https, f.http_fingerprint, f.ssh_port, f.ssh_public_key, f.search, coalesce(h.status, 'unknown') AS health, f.ssh_use_sftp
FROM file_server f
LEFT JOIN ref r ON r.type = f.group_type AND r.id = f.group_id
LEFT JOIN file_server p ON p.id = f.parent_id
LEFT JOIN site_agent_health h ON h.kind = 'pxe/file' AND h.id = f.id;
