-- +goose Up
CREATE TABLE setting_group (
	id      bigint PRIMARY KEY,
	version bigint NOT NULL DEFAULT 1, -- raised with each of its settings
	name    text NOT NULL,
	parent  bigint -- the setting that shows the group
);

CREATE TABLE setting (
	id            bigint PRIMARY KEY,
	version       bigint NOT NULL DEFAULT 1,
	group_id      bigint NOT NULL REFERENCES setting_group,
	slug          text NOT NULL UNIQUE,
	name          text NOT NULL,
	type          text NOT NULL CHECK (type IN ('Text', 'Textarea', 'Select', 'Checkbox')),
	options       text, -- of a Select, with commas between
	validator     text,
	default_value text NOT NULL,
	chosen        text, -- NULL: the default
	fresh         boolean NOT NULL DEFAULT true -- nobody has chosen yet: a variable of the environment may
);

CREATE INDEX setting_by_group ON setting (group_id, id);

INSERT INTO setting_group (id, name) VALUES (1, 'Site'), (2, 'Security'), (3, 'Limits'), (4, 'Log');

INSERT INTO setting (id, group_id, slug, name, type, validator, default_value) VALUES
	(1, 1, 'site_name', 'Name of the installation', 'Text', 'min:1|max:100', 'Ironplane'),
	(2, 1, 'api_url', 'Address of the API', 'Text', 'readonly', ''),
	(3, 1, 'client_url', 'Address of the clients'' panel', 'Text', 'readonly', ''),
	(4, 1, 'admin_url', 'Address of the admins'' panel', 'Text', 'readonly', ''),
	(5, 2, 'security.password_length', 'Least characters of a password', 'Text', 'integer|min:8|max:128', '12'),
	(6, 2, 'security.keys_per_owner', 'API keys that an account can have (0: any number)', 'Text', 'integer|min:0|max:1000000', '1000'),
	(7, 2, 'security.key_in_query', 'Look at ?key=, which puts keys into the logs of others', 'Checkbox', NULL, '0'),
	(8, 3, 'limits.owner_rate', 'Requests a second of an owner with all his keys', 'Text', 'integer|min:1|max:1000000', '100'),
	(9, 3, 'limits.owner_burst', 'Requests at once of an owner', 'Text', 'integer|min:1|max:1000000', '200'),
	(10, 3, 'limits.owner_concurrency', 'Requests of an owner under way at a gateway', 'Text', 'integer|min:1|max:1000000', '200'),
	(11, 3, 'limits.address_rate', 'Requests a second of an address without a valid key', 'Text', 'integer|min:1|max:1000000', '10'),
	(12, 3, 'limits.address_burst', 'Requests at once of an address without a valid key', 'Text', 'integer|min:1|max:1000000', '20'),
	(13, 3, 'limits.address_concurrency', 'Requests of an address without a valid key under way at a gateway', 'Text', 'integer|min:1|max:1000000', '50'),
	(14, 4, 'log.days', 'Days that the log is kept (0: for ever)', 'Text', 'integer|min:0|max:36500', '0');

-- What answers say. value is there where it is a number.
CREATE VIEW setting_view AS
	SELECT id, version, group_id, slug, name, type, options, validator, default_value, coalesce(chosen, default_value) AS text,
		CASE WHEN type = 'Select' THEN array_position(string_to_array(options, ','), coalesce(chosen, default_value)) - 1
			WHEN type = 'Checkbox' OR validator ~ '(^|\|)integer(\||$)' THEN coalesce(chosen, default_value)::bigint END AS value
	FROM setting;

CREATE VIEW setting_group_view AS
	SELECT id, version, name, parent, (
		SELECT jsonb_agg(jsonb_strip_nulls(jsonb_build_object('id', s.id, 'slug', slug, 'name', s.name, 'type', type, 'options', options, 'validator', validator,
			'default', default_value, 'text', text, 'value', value)) ORDER BY s.id)
		FROM setting_view s WHERE group_id = g.id) AS settings
	FROM setting_group g;
