-- +goose Up
-- What a key can do at most, whatever its owner holds; NULL: all of that. It has the form of admin.permissions.
ALTER TABLE api_key ADD COLUMN bound text[];
