CREATE OR REPLACE VIEW part_view AS
SELECT p.id, p.version, p.name, p.billing_id, p.part_type, p.search, t.id AS part_type_id, t.name AS part_type_name
FROM part p JOIN part_type t ON t.name = p.part_type;
