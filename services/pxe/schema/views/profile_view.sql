CREATE OR REPLACE VIEW profile_view AS
SELECT p.id, p.version, p.name, p.billing_id, p.access_client, p.boot_script_id, b.name AS boot_script_name, p.preseed_id, s.name AS preseed_name,
	p.email_template_id, r.name AS email_template_name, coalesce(p.shell_after, '{}') AS shell_after, coalesce(p.shell_during, '{}') AS shell_during,
	p.iso_id, i.name AS iso_name, p.iso_edition,
	coalesce(p.driver_ids, '{}') AS driver_ids, (SELECT coalesce(jsonb_agg(jsonb_build_object('id', d.id, 'name', d.name) ORDER BY d.id), '[]') FROM driver d WHERE d.id = ANY (p.driver_ids)) AS drivers,
	p.time_until_marked_failed, p.search, p.experimental, p.email_failed_id, q.name AS email_failed_name
FROM profile p
JOIN boot_script b ON b.id = p.boot_script_id
LEFT JOIN preseed s ON s.id = p.preseed_id
LEFT JOIN iso i ON i.id = p.iso_id
LEFT JOIN ref r ON r.type = p.email_template_type AND r.id = p.email_template_id
LEFT JOIN ref q ON q.type = p.email_failed_type AND q.id = p.email_failed_id;
