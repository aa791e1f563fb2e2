-- +goose Up
-- Changes commit in another order than their ids are given in. The sequencer numbers, without gaps, what is committed.
ALTER TABLE change ADD seq bigint;
ALTER TABLE change DROP CONSTRAINT change_pkey;
CREATE INDEX change_unnumbered ON change (id) WHERE seq IS NULL;
CREATE UNIQUE INDEX change_by_seq ON change (seq) WHERE seq IS NOT NULL;

CREATE TABLE sequencer (
	one  boolean PRIMARY KEY DEFAULT true CHECK (one),
	last bigint NOT NULL -- the number of the last change that has one
);

INSERT INTO sequencer (last) VALUES (0);

-- How far other services have read this one's changes: what all have read need not be kept for ever.
CREATE TABLE change_reader (
	name text PRIMARY KEY,
	seq  bigint NOT NULL
);

-- How far this service has applied the changes of others.
CREATE TABLE change_cursor (
	source     text PRIMARY KEY,
	seq        bigint NOT NULL,
	stopped_at bigint -- the change that it could not apply
);

-- Items of other services that are referred to from here.
CREATE TABLE ref (
	type    text NOT NULL,
	id      bigint NOT NULL,
	name    text NOT NULL,
	version bigint NOT NULL,
	gone    boolean NOT NULL DEFAULT false, -- ids are never given again: it stays gone
	PRIMARY KEY (type, id)
);
