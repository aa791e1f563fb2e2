CREATE OR REPLACE VIEW verify_code_view AS
SELECT c.id, c.version, c.owner_type, c.owner_id, c.key_id, c.expires_at, c.confirmed_at,
	coalesce(c.auth_id, 0) AS auth_id, m.id AS auth_method_id, m.name AS auth_method_name, coalesce(v.verified, false) AS auth_verified
FROM verify_code c LEFT JOIN authenticator v ON v.id = c.auth_id JOIN verify_method m ON m.id = coalesce(v.method_id, 2);
