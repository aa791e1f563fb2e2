-- +goose Up
INSERT INTO setting_group (id, name) SELECT max(id) + 1, 'Network' FROM setting_group;
INSERT INTO setting (id, group_id, slug, name, type, validator, default_value)
	SELECT max(id) + 1, (SELECT id FROM setting_group WHERE name = 'Network'), 'network.quarantine',
		'Hours until a released IP entity can be allocated again (0: at once)', 'Text', 'integer|min:0|max:8760', '24' FROM setting;
