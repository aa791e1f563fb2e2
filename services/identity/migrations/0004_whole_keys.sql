-- +goose Up
-- All that is written to a key can be read by the view, too.
CREATE OR REPLACE VIEW api_key_view AS
SELECT k.id, k.version, k.name, k.expires_at, k.search, k.owner_type, k.owner_id, a.username AS owner_name,
	'/' || k.owner_type || '/' || k.owner_id::text AS owner_url, k.hash, k.imported, k.bound
FROM api_key k LEFT JOIN admin a ON a.id = k.admin_id;
