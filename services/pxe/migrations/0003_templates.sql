-- +goose Up
-- Templates; problem is what is wrong with one since another version of Ironplane.
CREATE TABLE preseed (
	id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version        bigint NOT NULL DEFAULT 1,
	name           text NOT NULL CONSTRAINT preseed__name UNIQUE,
	description    text,
	is_installable boolean NOT NULL,
	body           text NOT NULL,
	problem        text,
	search         text NOT NULL GENERATED ALWAYS AS (E'\n' || lower(name) || E'\n' || lower(coalesce(description, ''))) STORED
);
CREATE INDEX preseed_search ON preseed USING gin (search gin_trgm_ops);
CREATE INDEX preseed_by_name ON preseed (name, id);

CREATE TABLE boot_script (
	id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version     bigint NOT NULL DEFAULT 1,
	name        text NOT NULL CONSTRAINT boot_script__name UNIQUE,
	description text,
	body        text NOT NULL,
	problem     text,
	search      text NOT NULL GENERATED ALWAYS AS (E'\n' || lower(name) || E'\n' || lower(coalesce(description, ''))) STORED
);
CREATE INDEX boot_script_search ON boot_script USING gin (search gin_trgm_ops);
CREATE INDEX boot_script_by_name ON boot_script (name, id);

CREATE TABLE shell_script (
	id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version     bigint NOT NULL DEFAULT 1,
	name        text NOT NULL CONSTRAINT shell_script__name UNIQUE,
	description text,
	body        text NOT NULL,
	problem     text,
	search      text NOT NULL GENERATED ALWAYS AS (E'\n' || lower(name) || E'\n' || lower(coalesce(description, ''))) STORED
);
CREATE INDEX shell_script_search ON shell_script USING gin (search gin_trgm_ops);
CREATE INDEX shell_script_by_name ON shell_script (name, id);
