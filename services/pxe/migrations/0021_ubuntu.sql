-- +goose Up
-- The import of an ISO delivers it as <folder>.iso beside its folder, where the seeded script now loads it.
UPDATE boot_script SET version = 2, body = replace(body, 'url=${base}/ubuntu.iso', 'url=${base}.iso'),
	description = 'BIOS and UEFI; the file server has the live server''s ISO as ubuntu-24.04.iso, and its files in the folder ubuntu-24.04: import it into that folder'
	WHERE name = 'Ubuntu 24.04 installer' AND version = 1;
