-- +goose Up
-- last_used_at is right within a minute or so, and no edit. allowed_cidrs: none: a key is good from anywhere. warned_for is which end its owner
-- was told of.
ALTER TABLE api_key ADD COLUMN last_used_at timestamptz, ADD COLUMN allowed_cidrs text[] NOT NULL DEFAULT '{}', ADD COLUMN warned_for timestamptz;
CREATE INDEX api_key_used ON api_key (coalesce(last_used_at, created_at)) WHERE kind = 'lasting';
CREATE INDEX api_key_expires ON api_key (expires_at) WHERE kind = 'lasting';

CREATE OR REPLACE VIEW api_key_view AS
SELECT k.id, k.version, k.name, k.expires_at, k.search, k.owner_type, k.owner_id, coalesce(a.username, r.name) AS owner_name,
	'/' || k.owner_type || '/' || k.owner_id::text AS owner_url, k.hash, k.imported, k.bound, k.kind, k.last_used_at, k.allowed_cidrs, k.created_at
FROM api_key k LEFT JOIN admin a ON a.id = k.admin_id LEFT JOIN ref r ON r.type = k.owner_type AND r.id = k.owner_id;

CREATE OR REPLACE VIEW session_view AS
SELECT k.id, k.version, k.name, k.created_at, k.expires_at, k.kind = 'acting' AS acting, host(k.ip) AS ip, k.owner_type, k.owner_id,
	k.actor_id, k.actor_type, '/' || k.actor_type || '/' || k.actor_id::text AS actor_url, coalesce(a.username, r.name) AS actor_name, k.last_used_at
FROM api_key k LEFT JOIN admin a ON k.actor_type = 'admin' AND a.id = k.actor_id LEFT JOIN ref r ON r.type = k.actor_type AND r.id = k.actor_id
WHERE k.kind <> 'lasting' AND k.expires_at > now();
