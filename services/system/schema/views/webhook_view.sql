CREATE OR REPLACE VIEW webhook_view AS
	SELECT id, version, name, url, types, enabled, owner_url, split_part(owner_url, '/', 3)::bigint AS owner_id, split_part(owner_url, '/', 2) AS owner_type,
		CASE WHEN old_secret IS NOT NULL AND old_secret_until > now() THEN old_secret_until END AS old_secret_until, created_at, search,
		CASE WHEN NOT enabled THEN coalesce(resting, 'it is disabled') WHEN paused_until > now() THEN resting END AS resting
	FROM webhook;
