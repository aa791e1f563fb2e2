CREATE OR REPLACE VIEW authenticator_view AS
SELECT v.id, v.version, v.owner_type, v.owner_id, coalesce(a.username, r.name) AS owner_name, '/' || v.owner_type || '/' || v.owner_id::text AS owner_url,
	v.method_id, m.name AS method_name, v.value, v.verified, v.name, coalesce(v.name, m.name) AS title
FROM authenticator v JOIN verify_method m ON m.id = v.method_id LEFT JOIN admin a ON a.id = v.admin_id
	LEFT JOIN ref r ON r.type = v.owner_type AND r.id = v.owner_id;
