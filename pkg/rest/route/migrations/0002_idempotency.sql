-- +goose Up
-- The first answer to a POST that its caller may repeat, sealed under a key that only the caller has.
CREATE TABLE idempotency (
	id          bytea PRIMARY KEY,
	fingerprint bytea NOT NULL,
	answer      bytea NOT NULL,
	expires_at  timestamptz NOT NULL
);

CREATE INDEX idempotency_by_expiry ON idempotency (expires_at);
