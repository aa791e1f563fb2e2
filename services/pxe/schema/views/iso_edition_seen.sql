-- An edition that clients see is there once more for them, without its key.
CREATE OR REPLACE VIEW iso_edition_seen AS
SELECT id, version, iso_id, number, name, is_enabled, key, false AS for_client FROM iso_edition_view
UNION ALL
SELECT id, version, iso_id, number, name, is_enabled, NULL, true FROM iso_edition e
WHERE is_enabled AND EXISTS (SELECT FROM profile p WHERE p.iso_id = e.iso_id AND p.access_client);
