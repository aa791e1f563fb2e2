-- +goose Up
INSERT INTO setting (id, group_id, slug, name, type, validator, default_value)
	SELECT max(id) + 1, (SELECT id FROM setting_group WHERE name = 'PXE'), 'pxe.iso_size', 'Most GiB of an ISO', 'Text', 'integer|min:1|max:1024', '16' FROM setting;
