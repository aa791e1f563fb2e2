-- +goose Up
-- The system in memory is an ISO now, which an import and a sync bring to the file servers. The seeded script loads it from there, unless
-- somebody has changed it.
UPDATE boot_script SET version = version + 1, body = replace(body, '/local/memory
', '/rescue
'),
	description = 'BIOS and UEFI; the file server has, in the folder rescue, the system in memory, which runs the preseed'
	WHERE name = 'Rescue system' AND version = 3;
