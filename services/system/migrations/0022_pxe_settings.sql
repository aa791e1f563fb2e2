-- +goose Up
INSERT INTO setting_group (id, name) SELECT max(id) + 1, 'PXE' FROM setting_group;
INSERT INTO setting (id, group_id, slug, name, type, validator, default_value)
	SELECT max(id) + 1, (SELECT id FROM setting_group WHERE name = 'PXE'), 'pxe.sync_children', 'Children of a file server that get its files at a time', 'Text', 'integer|min:1|max:100', '4' FROM setting;
