-- +goose Up
-- Links by which a password is chosen. Who asks for one by a name that nobody has leaves a row, too, that is of nobody.
CREATE TABLE password_reset (
	id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	owner_type  text,
	owner_id    bigint,
	credentials bigint NOT NULL DEFAULT 0, -- of a client: the version of what it could sign in with
	welcome     boolean NOT NULL DEFAULT false, -- the first password of a new account
	ip          inet,
	hash        bytea CHECK (length(hash) = 32), -- SHA-256 of the token; NULL: the link is not mailed
	expires_at  timestamptz NOT NULL,
	CHECK ((owner_type IS NULL) = (owner_id IS NULL))
);
CREATE INDEX password_reset_by_owner ON password_reset (owner_type, owner_id);
CREATE INDEX password_reset_ends ON password_reset (expires_at);

-- Codes of links that sign in, each good for a moment and once.
CREATE TABLE sso_code (
	hash        bytea PRIMARY KEY CHECK (length(hash) = 32),
	owner_type  text NOT NULL,
	owner_id    bigint NOT NULL,
	key_id      bigint NOT NULL REFERENCES api_key ON DELETE CASCADE, -- that it was made with
	actor_type  text NOT NULL,
	actor_id    bigint NOT NULL,
	actor_name  text NOT NULL,
	bound       text[],
	credentials bigint NOT NULL DEFAULT 0, -- of a client's own: the version of what it could sign in with
	expires_at  timestamptz NOT NULL
);
CREATE INDEX sso_code_by_key ON sso_code (key_id);
CREATE INDEX sso_code_by_owner ON sso_code (owner_type, owner_id);
CREATE INDEX sso_code_ends ON sso_code (expires_at);
