-- What is folded when everything is counted.
CREATE OR REPLACE VIEW ip_free_counted AS
SELECT group_id, count(*) AS free FROM ip_free GROUP BY group_id;
