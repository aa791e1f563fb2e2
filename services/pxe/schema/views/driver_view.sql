CREATE OR REPLACE VIEW driver_view AS
SELECT d.id, d.version, d.name, d.content, f.id AS file_id, f.size, f.sha256, d.search
FROM driver d
JOIN stored_file f ON f.path = 'drivers/' || d.id;
