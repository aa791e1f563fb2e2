-- +goose Up

CREATE TABLE field (
	id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version       bigint NOT NULL DEFAULT 1,
	name          text NOT NULL,
	slug          text NOT NULL,
	description   text,
	placeholder   text,
	default_value text,
	target_type   text NOT NULL CHECK (target_type IN ('client', 'entity', 'group', 'server')),
	type          text NOT NULL CHECK (type IN ('text', 'integer', 'checkbox', 'date', 'select')),
	options       text CHECK ((options IS NOT NULL) = (type = 'select')), -- with | between them
	search        text NOT NULL GENERATED ALWAYS AS (E'\n' || lower(name) || E'\n' || lower(slug)) STORED,
	CONSTRAINT field__slug UNIQUE (target_type, slug),
	UNIQUE (id, target_type)
);
CREATE INDEX field_search ON field USING gin (search gin_trgm_ops);
CREATE INDEX field_by_name ON field (name, id);
CREATE INDEX field_by_slug ON field (slug, id);

-- What a target has in a field. Groups and entities are ours, so their values go with them; others are known by id.
CREATE TABLE field_value (
	id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version     bigint NOT NULL DEFAULT 1,
	field_id    bigint NOT NULL,
	target_type text NOT NULL,
	target_id   bigint NOT NULL,
	value       text NOT NULL,
	entity_id   bigint GENERATED ALWAYS AS (CASE target_type WHEN 'entity' THEN target_id END) STORED
		CONSTRAINT field_value_of_entity__target_id REFERENCES ip_entity ON DELETE CASCADE,
	group_id    bigint GENERATED ALWAYS AS (CASE target_type WHEN 'group' THEN target_id END) STORED
		CONSTRAINT field_value_of_group__target_id REFERENCES ip_group ON DELETE CASCADE,
	CONSTRAINT field_value__target_id UNIQUE (field_id, target_id),
	CONSTRAINT field_value_field FOREIGN KEY (field_id, target_type) REFERENCES field (id, target_type) ON DELETE CASCADE
);
CREATE INDEX field_value_by_target ON field_value (target_type, target_id);
CREATE INDEX field_value_by_entity ON field_value (entity_id) WHERE entity_id IS NOT NULL;
CREATE INDEX field_value_by_group ON field_value (group_id) WHERE group_id IS NOT NULL;
