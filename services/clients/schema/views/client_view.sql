CREATE OR REPLACE VIEW client_view AS
SELECT c.id, c.version, c.email, c.first, c.last, c.name, c.created_at, c.search, c.disabled,
	c.billing_id, c.billing_id AS of_billing_id, c.ignore_auto_suspend, c.ignore_auto_suspend AS of_billing_ignore_auto_suspend,
	c.integration_id, CASE WHEN c.integration_id IS NOT NULL THEN coalesce(r.name, '') END AS integration_name, c.password_hash,
	c.require_verify, jsonb_build_array(jsonb_build_object('require', c.require_verify)) AS verify, c.claimed_at,
	coalesce(n.servers, 0) AS servers_count,
	ARRAY(SELECT DISTINCT s.kind FROM suspension s WHERE s.client_id = c.id ORDER BY s.kind) AS suspended_by,
	c.disabled OR EXISTS (SELECT FROM client_reach u JOIN client a ON a.id = u.ancestor WHERE u.descendant = c.id AND a.disabled) AS suspended,
	c.language
FROM client c LEFT JOIN ref r ON r.type = 'integration' AND r.id = c.integration_id LEFT JOIN client_server_count n ON n.id = c.id;
