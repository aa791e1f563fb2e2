-- +goose Up
-- The integration that made the key for its client.
ALTER TABLE api_key ADD COLUMN maker_id bigint;
