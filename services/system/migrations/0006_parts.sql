-- +goose Up
CREATE TABLE part_type (
	id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	name text NOT NULL UNIQUE CHECK (name = lower(name))
);
INSERT INTO part_type (name) VALUES ('cpu'), ('mem'), ('disk'), ('add-on');

CREATE TABLE part (
	id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version    bigint NOT NULL DEFAULT 1,
	name       text NOT NULL,
	billing_id text,
	part_type  text NOT NULL REFERENCES part_type (name),
	search     text NOT NULL GENERATED ALWAYS AS (E'\n' || lower(name) || E'\n' || lower(coalesce(billing_id, ''))) STORED,
	CONSTRAINT part__name UNIQUE (part_type, name)
);
CREATE INDEX part_search ON part USING gin (search gin_trgm_ops);
ALTER TABLE part ALTER COLUMN search SET STATISTICS 1000;
CREATE INDEX part_by_name ON part (name, id);
CREATE INDEX part_by_billing_id ON part (billing_id, id);
CREATE INDEX part_by_type ON part (part_type, id);

CREATE VIEW part_view AS
SELECT p.id, p.version, p.name, p.billing_id, p.part_type, p.search, t.id AS part_type_id, t.name AS part_type_name
FROM part p JOIN part_type t ON t.name = p.part_type;
