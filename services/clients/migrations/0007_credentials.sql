-- +goose Up
-- How often address or password were changed, and by which of the account's own keys last. Sessions from before are no more, but that key's.
ALTER TABLE client ADD COLUMN credentials bigint NOT NULL DEFAULT 0, ADD COLUMN credentials_key bigint NOT NULL DEFAULT 0;
