CREATE OR REPLACE VIEW iso_view AS
SELECT i.id, i.version, i.name, i.folder, i.status, i.error, i.created_at, i.search, i.wanted,
	CASE WHEN i.status = 'ready' THEN 100 WHEN i.status = 'extracting' THEN 99 WHEN d.size > 0 AND i.expected > 0 THEN least(98, 98 * d.size / i.expected) ELSE 0 END::integer AS progress,
	f.size, f.sha256
FROM iso i
LEFT JOIN stored_file d ON d.id = i.draft_id
LEFT JOIN stored_file f ON f.path = i.folder || '.iso';
