CREATE OR REPLACE VIEW iso_edition_view AS
SELECT id, version, iso_id, number, name, is_enabled, key_end, '*****-*****-*****-*****-' || key_end AS key FROM iso_edition;
