CREATE OR REPLACE VIEW ip_unassigned AS
SELECT e.id AS entity_id, e.group_id, e.v4_first, free_bits(e.v4_first, e.v4_last, e.v4_bits) AS v4_bits, e.v6_first, free_bits(e.v6_first, e.v6_last, e.v6_bits) AS v6_bits
FROM ip_entity e WHERE NOT EXISTS (SELECT FROM ip_assignment a WHERE a.entity_id = e.id);
