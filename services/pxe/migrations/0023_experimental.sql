-- +goose Up
ALTER TABLE profile ADD experimental boolean NOT NULL DEFAULT false; -- nobody has installed a machine with it
-- Seeds that nobody has changed, and that no test has booted.
UPDATE profile p SET experimental = true, version = p.version + 1 FROM boot_script b
	WHERE b.id = p.boot_script_id AND p.version = 1 AND (p.name, b.name) IN (('AlmaLinux 9', 'AlmaLinux 9 installer'), ('Rocky Linux 9', 'Rocky Linux 9 installer'),
		('Ubuntu 24.04', 'Ubuntu 24.04 installer'), ('Windows Server 2022', 'Windows installer'));
UPDATE boot_script SET version = version + 1, description = 'experimental, because no test has installed a machine with it; ' || description
	WHERE (name, version) IN (('AlmaLinux 9 installer', 1), ('Rocky Linux 9 installer', 1), ('Ubuntu 24.04 installer', 3), ('Windows installer', 3));
UPDATE preseed SET version = version + 1, description = 'experimental, because no test has installed a machine with it; ' || description
	WHERE (name, version) IN (('AlmaLinux 9', 1), ('Rocky Linux 9', 1), ('Ubuntu 24.04', 2), ('Windows Server 2022', 2));
-- A server without a screen shows the memory test on its serial console.
UPDATE boot_script SET version = version + 1, body = replace(replace(body, 'memtest64.efi', 'memtest64.efi{{with value "console" .Variables}} console={{line .}}{{end}}'),
		'memtest64.bin', 'memtest64.bin{{with value "console" .Variables}} console={{line .}}{{end}}'),
	description = description || '; variable: console, such as ttyS0,115200'
	WHERE name = 'Memory test' AND version = 2;
