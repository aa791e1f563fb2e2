-- +goose Up
CREATE TABLE integration (
	id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version     bigint NOT NULL DEFAULT 1,
	name        text NOT NULL,
	subject     text,
	body        text,
	permissions text[] NOT NULL DEFAULT '{}', -- such as "network.entities write"
	disabled    boolean NOT NULL DEFAULT false,
	search      text NOT NULL GENERATED ALWAYS AS (E'\n' || lower(name)) STORED
);
CREATE UNIQUE INDEX integration__name ON integration (lower(name));
CREATE INDEX integration_search ON integration USING gin (search gin_trgm_ops);
CREATE INDEX integration_by_name ON integration (name, id);
CREATE INDEX integration_by_disabled ON integration (disabled, id);

-- What belongs to an integration elsewhere, as far as it was heard of. Apart from it, so that nobody waits who edits it.
CREATE TABLE integration_count (
	id      bigint PRIMARY KEY REFERENCES integration ON DELETE CASCADE,
	clients bigint NOT NULL DEFAULT 0,
	keys    bigint NOT NULL DEFAULT 0
);

CREATE VIEW integration_view AS
SELECT i.id, i.version, i.name, i.subject, i.body, i.disabled, i.search, coalesce(n.clients, 0) AS clients, coalesce(n.keys, 0) AS keys,
	(SELECT count(DISTINCT split_part(p, ' ', 1)) FROM unnest(i.permissions) p) AS permissions
FROM integration i LEFT JOIN integration_count n ON n.id = i.id;
