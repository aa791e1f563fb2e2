CREATE OR REPLACE VIEW log_by_target AS
SELECT t.log_id AS id, t.at AS created_at, t.type AS target_type, t.target_id, l.type, t.user_url, log_search(l.description, l.user_name, l.ip, l.targets) AS search
FROM log_target t LEFT JOIN log l ON l.id = t.log_id;
