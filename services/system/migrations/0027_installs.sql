-- +goose Up
INSERT INTO setting (id, group_id, slug, name, type, validator, default_value)
	SELECT (SELECT max(id) FROM setting) + n, (SELECT id FROM setting_group WHERE name = 'PXE'), slug, name, 'Text', 'integer|min:1|max:525600', default_value
	FROM (VALUES (1, 'pxe.install_wait', 'Minutes until an install fails whose machine does not ask for its boot script', '1440'),
		(2, 'pxe.install_boot', 'Minutes until one fails whose installer does not report since then', '30'),
		(3, 'pxe.install_time', 'Minutes until one fails that is not done since then, unless its profile says so', '240')) new (n, slug, name, default_value);

INSERT INTO todo (slug, done_by) VALUES ('hardware.server.install.add', 'pxe.install.created'), ('hardware.server.install.finish', 'pxe.install.installed');
