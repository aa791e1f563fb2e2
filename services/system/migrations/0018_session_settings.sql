-- +goose Up
INSERT INTO setting (id, group_id, slug, name, type, validator, default_value)
SELECT (SELECT max(id) FROM setting) + n, 2, new.slug, new.name, 'Text', new.validator, new.value FROM (VALUES
	(1, 'security.session_duration', 'Minutes that a session lasts unless it is renewed', 'integer|min:1|max:525600', '720'),
	(2, 'security.session_max', 'Minutes after the login at which a session ends at the latest (0: it can be renewed for ever)', 'integer|min:0|max:525600', '10080')) new (n, slug, name, validator, value);
