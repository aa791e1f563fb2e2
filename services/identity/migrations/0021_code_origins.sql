-- +goose Up
-- How and from where second factors were asked for. Each origin and network uses up its own share of them, and nobody else's.
ALTER TABLE verify_code
	ADD COLUMN origin text NOT NULL DEFAULT 'login' CHECK (origin IN ('login', 'device', 'session')), -- device: a login from a known device
	ADD COLUMN address inet, -- NULL: an older version stored the row
	ADD COLUMN mailed_at timestamptz;
