-- +goose Up
-- The clients that integrations have asked to adopt. The row stays when its code was used: it says when the client was asked.
CREATE TABLE adoption (
	client_id      bigint NOT NULL REFERENCES client ON DELETE CASCADE,
	integration_id bigint NOT NULL,
	billing_id     bigint NOT NULL,
	credentials    bigint NOT NULL, -- the version of the client's email and password when it was asked
	hash           bytea CHECK (length(hash) = 32), -- SHA-256 of the code; NULL: it was used
	expires_at     timestamptz NOT NULL,
	asked_at       timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (client_id, integration_id)
);
CREATE INDEX adoption_ends ON adoption (expires_at);
