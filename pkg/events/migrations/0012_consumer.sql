-- +goose Up
-- A service may have several consumers of one source, each with a name but one. An older program knows that one alone.
ALTER TABLE change_cursor RENAME TO consumer;
ALTER TABLE consumer ADD name text NOT NULL DEFAULT '';
ALTER TABLE consumer DROP CONSTRAINT change_cursor_pkey, ADD PRIMARY KEY (source, name);
CREATE VIEW change_cursor AS SELECT source, seq, stopped_at, history, change, change_seq, newest FROM consumer WHERE name = '';
