-- An item with several targets of a type has one row for the type.
CREATE OR REPLACE VIEW log_by_target_type AS
SELECT t.log_id AS id, t.at AS created_at, t.type AS target_type, l.type, t.user_url
FROM log_target t LEFT JOIN log l ON l.id = t.log_id
WHERE NOT EXISTS (SELECT FROM log_target o WHERE o.log_id = t.log_id AND o.type = t.type AND o.target_id < t.target_id);
