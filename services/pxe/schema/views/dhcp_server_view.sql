CREATE OR REPLACE VIEW dhcp_server_view AS
SELECT d.id, d.version, d.name, d.http_host, d.http_port, d.http_use_https, d.http_fingerprint, d.search, coalesce(h.status, 'unknown') AS health
FROM dhcp_server d LEFT JOIN site_agent_health h ON h.kind = 'pxe/dhcp' AND h.id = d.id;
