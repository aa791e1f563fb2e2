-- +goose Up
-- What came with Ironplane and nobody has changed since: a sync of file servers leaves alone what is in local; a token is dead once
-- an installation has said that it is done; and the ISO of SystemRescue is one that ISOs are imported from.
UPDATE boot_script SET version = 2, body = replace(body, '{{.URL.Files}}/local.efi', '{{.URL.Files}}/local/boot/local.efi'),
	description = 'of UEFI, the file server has local/boot/local.efi: a GRUB that looks for a loader on the disks'
	WHERE name = 'Local disk' AND version = 1;
UPDATE boot_script SET version = 2, body = replace(body, '{{.URL.Files}}/wimboot', '{{.URL.Files}}/local/boot/wimboot'),
	description = 'BIOS and UEFI; the file server has local/boot/wimboot, and in the folder windows-server-2022 what is in Microsoft''s ISO'
	WHERE name = 'Windows installer' AND version = 1;
UPDATE boot_script SET version = 2, body = replace(body, '{{.URL.Files}}/memtest86plus/', '{{.URL.Files}}/local/memtest86plus/'),
	description = 'BIOS and UEFI; the file server has, in the folder local/memtest86plus, memtest64.bin and memtest64.efi of Memtest86+'
	WHERE name = 'Memory test' AND version = 1;
UPDATE boot_script SET version = 2, body = replace(replace(body, '{{.URL.Files}}/sysresccd/', '{{.URL.Files}}/systemrescue/sysresccd/'), 'archiso_http_srv={{.URL.Files}}/', 'archiso_http_srv={{.URL.Files}}/systemrescue/'),
	description = 'BIOS and UEFI; the file server has, in the folder systemrescue, what is in SystemRescue''s ISO'
	WHERE name = 'Rescue system' AND version = 1;
UPDATE preseed SET version = 2, body = replace(replace(body, $old$      - [sh, -c, {{json "curl -fsS \"$1\" | sh"}}, sh, {{json .URL.After}}]
$old$, $new$      - [sh, -c, "sh /usr/local/sbin/after-install; rm -f /usr/local/sbin/after-install"]
$new$), $old$    - [curl, -fsS, -X, POST, {{json .URL.Done}}]
$old$, $new$    - [curl, -fsS, -o, /target/usr/local/sbin/after-install, {{json .URL.After}}]
    - [curl, -fsS, -X, POST, {{json .URL.Done}}]
$new$)
	WHERE name = 'Ubuntu 24.04' AND version = 1;
