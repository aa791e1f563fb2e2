-- +goose Up
-- A test has wiped a machine with this profile. What somebody has changed stays.
UPDATE profile p SET experimental = false, version = p.version + 1 FROM boot_script b
	WHERE b.id = p.boot_script_id AND p.name = 'Wipe' AND p.experimental AND b.name = 'Wipe' AND b.version = 1;
UPDATE boot_script SET version = version + 1, description = replace(description, 'experimental, because no test has wiped a machine with it; ', '')
	WHERE name = 'Wipe' AND version = 1;
UPDATE preseed SET version = version + 1, description = replace(description, 'experimental, because no test has wiped a machine with it; ', '')
	WHERE name = 'Wipe' AND version = 1;
