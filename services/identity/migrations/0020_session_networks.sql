-- +goose Up
-- session_cidrs are the networks that sessions made with a key may be used from. Empty: those of the key itself.
ALTER TABLE api_key ADD COLUMN session_cidrs text[] NOT NULL DEFAULT '{}';
