-- Values with the names of their fields, which records of changes bear.
CREATE OR REPLACE VIEW field_value_view AS
SELECT v.id, v.version, v.field_id, v.target_type, v.target_id, v.value, f.name
FROM field_value v JOIN field f ON f.id = v.field_id;
