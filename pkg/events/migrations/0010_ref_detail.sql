-- +goose Up
-- What else the owner tells of an item, as of the version; NULL: it was not asked since that version was heard of.
ALTER TABLE ref ADD COLUMN detail jsonb;
