-- What is folded when everything is counted.
CREATE OR REPLACE VIEW ip_held_counted AS
SELECT group_id, count(*) FILTER (WHERE available_at IS NULL) AS reserved, count(available_at) AS quarantined
FROM ip_assignment WHERE owner_id IS NULL GROUP BY group_id;
