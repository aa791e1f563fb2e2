CREATE OR REPLACE VIEW session_view AS
SELECT k.id, k.version, k.name, k.created_at, k.expires_at, k.kind = 'acting' AS acting, host(k.ip) AS ip, k.owner_type, k.owner_id,
	k.actor_id, k.actor_type, '/' || k.actor_type || '/' || k.actor_id::text AS actor_url, coalesce(a.username, r.name) AS actor_name, k.last_used_at, k.agent
FROM api_key k LEFT JOIN admin a ON k.actor_type = 'admin' AND a.id = k.actor_id LEFT JOIN ref r ON r.type = k.actor_type AND r.id = k.actor_id
WHERE k.kind <> 'lasting' AND k.expires_at > now();
