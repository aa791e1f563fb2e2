-- +goose Up
-- What proves who somebody is besides the password.
CREATE TABLE authenticator (
	id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version    bigint NOT NULL DEFAULT 1,
	owner_type text NOT NULL CHECK (owner_type IN ('admin', 'client')),
	owner_id   bigint NOT NULL,
	admin_id   bigint GENERATED ALWAYS AS (CASE WHEN owner_type = 'admin' THEN owner_id END) STORED REFERENCES admin ON DELETE CASCADE,
	method_id  bigint NOT NULL REFERENCES verify_method,
	value      text,                      -- of email: the address
	secret     bytea,                     -- of totp
	step       bigint NOT NULL DEFAULT 0, -- of totp: the last one that was accepted
	verified   boolean NOT NULL DEFAULT false,
	CHECK ((method_id = 2) = (value IS NOT NULL))
);
CREATE INDEX authenticator_by_owner ON authenticator (owner_type, owner_id, id);
CREATE INDEX authenticator_by_admin ON authenticator (admin_id);

CREATE VIEW authenticator_view AS
SELECT v.id, v.version, v.owner_type, v.owner_id, coalesce(a.username, r.name) AS owner_name, '/' || v.owner_type || '/' || v.owner_id::text AS owner_url,
	v.method_id, m.name AS method_name, v.value, v.verified
FROM authenticator v JOIN verify_method m ON m.id = v.method_id LEFT JOIN admin a ON a.id = v.admin_id
	LEFT JOIN ref r ON r.type = v.owner_type AND r.id = v.owner_id;

-- A code that was asked for, and that is yet to come or has.
CREATE TABLE verify_code (
	id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version      bigint NOT NULL DEFAULT 1,
	owner_type   text NOT NULL,
	owner_id     bigint NOT NULL,
	admin_id     bigint GENERATED ALWAYS AS (CASE WHEN owner_type = 'admin' THEN owner_id END) STORED REFERENCES admin ON DELETE CASCADE,
	auth_id      bigint REFERENCES authenticator ON DELETE CASCADE, -- NULL: the account must have one and has none, and is mailed a code
	key_id       bigint REFERENCES api_key ON DELETE CASCADE,       -- which asked for it, or whose session began with it; NULL: of a login that goes on
	challenge    bytea UNIQUE CHECK (length(challenge) = 32),       -- of a login
	credentials  bigint NOT NULL DEFAULT 0,                         -- of a client: the version of its address and password
	token        bytea,                                             -- what was mailed
	tries        integer NOT NULL DEFAULT 0,
	expires_at   timestamptz NOT NULL,
	confirmed_at timestamptz,
	CHECK (key_id IS NOT NULL OR challenge IS NOT NULL)
);
CREATE INDEX verify_code_by_owner ON verify_code (owner_type, owner_id, expires_at);
CREATE INDEX verify_code_by_admin ON verify_code (admin_id);
CREATE INDEX verify_code_by_auth ON verify_code (auth_id);
CREATE INDEX verify_code_by_key ON verify_code (key_id);
CREATE INDEX verify_code_ends ON verify_code (expires_at);

CREATE VIEW verify_code_view AS
SELECT c.id, c.version, c.owner_type, c.owner_id, c.key_id, c.expires_at, c.confirmed_at,
	coalesce(c.auth_id, 0) AS auth_id, m.id AS auth_method_id, m.name AS auth_method_name, coalesce(v.verified, false) AS auth_verified
FROM verify_code c LEFT JOIN authenticator v ON v.id = c.auth_id JOIN verify_method m ON m.id = coalesce(v.method_id, 2);

-- What is good once in place of a code.
CREATE TABLE recovery_code (
	hash       bytea PRIMARY KEY CHECK (length(hash) = 32),
	owner_type text NOT NULL,
	owner_id   bigint NOT NULL,
	admin_id   bigint GENERATED ALWAYS AS (CASE WHEN owner_type = 'admin' THEN owner_id END) STORED REFERENCES admin ON DELETE CASCADE
);
CREATE INDEX recovery_code_by_owner ON recovery_code (owner_type, owner_id);
CREATE INDEX recovery_code_by_admin ON recovery_code (admin_id);
