CREATE OR REPLACE VIEW log_item_view AS
SELECT v.id, v.created_at, v.ip, v.type, v."desc", v.user_id, v.user_name, v.user_url, v.targets, v.search,
	v."desc" AS data_description, l.changes AS data_changes
FROM log_view v JOIN log l USING (id);
