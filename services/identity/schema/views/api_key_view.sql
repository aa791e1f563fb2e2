-- Owners that other services have are known by what was heard of them.
CREATE OR REPLACE VIEW api_key_view AS
SELECT k.id, k.version, k.name, k.expires_at, k.search, k.owner_type, k.owner_id, coalesce(a.username, r.name) AS owner_name,
	'/' || k.owner_type || '/' || k.owner_id::text AS owner_url, k.hash, k.imported, k.bound, k.kind, k.last_used_at, k.allowed_cidrs, k.created_at
FROM api_key k LEFT JOIN admin a ON a.id = k.admin_id LEFT JOIN ref r ON r.type = k.owner_type AND r.id = k.owner_id;
