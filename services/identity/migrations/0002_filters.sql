-- +goose Up
-- What lists are filtered by has an index.
CREATE INDEX admin_by_email ON admin (lower(coalesce(email, '')));
CREATE INDEX api_key_by_owner_url ON api_key (('/' || owner_type || '/' || owner_id::text), id);

CREATE OR REPLACE VIEW api_key_view AS
SELECT k.id, k.version, k.name, k.expires_at, k.search, k.owner_type, k.owner_id, a.username AS owner_name, '/' || k.owner_type || '/' || k.owner_id::text AS owner_url
FROM api_key k LEFT JOIN admin a ON a.id = k.admin_id;
