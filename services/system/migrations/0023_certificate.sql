-- +goose Up
-- One row: how callers reach the API over TLS, and the certificate that gateways show them.
CREATE TABLE ssl (
	id         bigint PRIMARY KEY CHECK (id = 1),
	version    bigint NOT NULL DEFAULT 1,
	edition    uuid NOT NULL DEFAULT gen_random_uuid(), -- of the certificate: another one has another, also after a restore
	email      text,                      -- whom the authority writes to; NULL: no certificate is ordered
	required   boolean NOT NULL DEFAULT false,
	ordered    bigint NOT NULL DEFAULT 0, -- which order counts
	error      text,                      -- what its last attempt failed with
	name       text,                      -- of the certificate
	chain      text,                      -- PEM
	key        bytea,                     -- sealed
	not_after  timestamptz,
	renew_at   timestamptz,
	CHECK (num_nulls(name, chain, key, not_after, renew_at) IN (0, 5))
);

INSERT INTO ssl (id) VALUES (1);

CREATE TABLE acme_account (
	id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	directory text NOT NULL,
	email     text NOT NULL,
	location  text NOT NULL,
	key       bytea, -- sealed
	UNIQUE (directory, email)
);

-- What an authority asks gateways for while an order is under way.
CREATE TABLE acme_challenge (
	token         text PRIMARY KEY,
	type          text NOT NULL,
	name          text NOT NULL,
	key_auth      text NOT NULL,
	created_at    timestamptz NOT NULL DEFAULT now()
);
