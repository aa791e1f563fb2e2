CREATE OR REPLACE VIEW log_view AS
SELECT id, at AS created_at, coalesce(ip, '') AS ip, type, description AS "desc",
	substring(user_url FROM '[0-9]+$')::bigint AS user_id, user_name, user_url, targets, log_search(description, user_name, ip, targets) AS search
FROM log;
