-- What client_seen has for who holds users.clients, by itself: of a union the planner reads all rows before it sorts them.
CREATE OR REPLACE VIEW client_listed AS
SELECT id, version, email, first, last, name, created_at, search, disabled,
	billing_id, of_billing_id, ignore_auto_suspend, of_billing_ignore_auto_suspend,
	integration_id, integration_name, password_hash,
	require_verify, verify, claimed_at,
	servers_count,
	0::bigint AS viewer, true AS listed,
	suspended_by, suspended, language
FROM client_view;
