-- Owners that other services have are known by what was heard of them. A session without networks of its own has those for sessions of the key
-- that it was made with.
CREATE OR REPLACE VIEW api_key_view AS
SELECT k.id, k.version, k.name, k.expires_at, k.search, k.owner_type, k.owner_id, coalesce(a.username, r.name) AS owner_name,
	'/' || k.owner_type || '/' || k.owner_id::text AS owner_url, k.hash, k.imported, k.bound, k.kind, k.last_used_at,
	CASE WHEN k.allowed_cidrs = '{}' AND m.session_cidrs <> '{}' THEN m.session_cidrs
		WHEN k.allowed_cidrs = '{}' AND m.id IS NOT NULL THEN m.allowed_cidrs ELSE k.allowed_cidrs END AS allowed_cidrs, k.created_at, k.session_cidrs, k.maker_id
FROM api_key k LEFT JOIN admin a ON a.id = k.admin_id LEFT JOIN ref r ON r.type = k.owner_type AND r.id = k.owner_id
	LEFT JOIN api_key m ON m.id = k.made_with;
