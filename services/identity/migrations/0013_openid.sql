-- +goose Up
-- The identity providers by which admins sign in.
CREATE TABLE openid_provider (
	id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version       bigint NOT NULL DEFAULT 1,
	name          text NOT NULL CONSTRAINT openid_provider__name UNIQUE CHECK (name <> ''),
	issuer        text NOT NULL,
	client_id     text NOT NULL,
	client_secret bytea,                       -- sealed
	domains       text[] NOT NULL DEFAULT '{}', -- whose verified addresses name admins
	makes_admins  boolean NOT NULL DEFAULT false,
	permissions   text[] NOT NULL DEFAULT '{}', -- of those that are made
	disabled      boolean NOT NULL DEFAULT false
);

-- Which admin somebody is whom a provider knows.
CREATE TABLE openid_subject (
	issuer   text NOT NULL,
	subject  text NOT NULL,
	admin_id bigint NOT NULL REFERENCES admin ON DELETE CASCADE,
	PRIMARY KEY (issuer, subject),
	CONSTRAINT openid_subject_once UNIQUE (admin_id, issuer)
);

-- Sign-ins that are under way: at the provider, and then on the way back to the panel.
CREATE TABLE openid_login (
	id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	provider_id bigint NOT NULL REFERENCES openid_provider ON DELETE CASCADE,
	hash        bytea NOT NULL UNIQUE CHECK (length(hash) = 32),  -- SHA-256 of the state, and then of the code
	challenge   bytea NOT NULL CHECK (length(challenge) = 32),    -- SHA-256 of what the panel keeps
	nonce       text NOT NULL,
	verifier    bytea,                                            -- sealed; of PKCE
	came_back   boolean NOT NULL DEFAULT false,
	admin_id    bigint REFERENCES admin ON DELETE CASCADE,        -- who has signed in
	expires_at  timestamptz NOT NULL
);
CREATE INDEX openid_login_provider ON openid_login (provider_id);
CREATE INDEX openid_login_admin ON openid_login (admin_id);
CREATE INDEX openid_login_ends ON openid_login (expires_at);
