-- What the counts are when everything is counted.
CREATE OR REPLACE VIEW ip_group_server_counted AS
SELECT group_id, server_id, count(*) AS entities FROM ip_assignment WHERE server_id IS NOT NULL GROUP BY group_id, server_id;
