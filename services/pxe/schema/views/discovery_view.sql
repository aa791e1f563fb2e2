CREATE OR REPLACE VIEW discovery_view AS
SELECT d.id, d.version, d.name, d.address, d.facts, d.dhcp_server_id, s.name AS dhcp_server_name, d.first_seen_at, d.seen_at
FROM discovery d LEFT JOIN dhcp_server s ON s.id = d.dhcp_server_id;
