CREATE OR REPLACE VIEW ip_group_counted AS
SELECT group_id, e.entities, coalesce(s.servers, 0) AS servers
FROM (SELECT group_id, count(*) AS entities FROM ip_entity GROUP BY group_id) e
LEFT JOIN (SELECT group_id, count(*) AS servers FROM ip_group_server_counted GROUP BY group_id) s USING (group_id);
