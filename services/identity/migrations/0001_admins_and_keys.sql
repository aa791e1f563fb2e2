-- +goose Up
-- A constraint that a caller can run into is named <table>__<member of the body>.

CREATE TABLE admin (
	id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version        bigint NOT NULL DEFAULT 1,
	username       text NOT NULL CHECK (username <> ''),
	email          text, -- only the first admin may have none
	password_hash  text, -- PHC string; NULL: no login by password
	receive_copies boolean NOT NULL DEFAULT false,
	permissions    text[] NOT NULL DEFAULT '{}', -- such as "network.entities write"
	created_at     timestamptz NOT NULL DEFAULT now(),
	search         text NOT NULL GENERATED ALWAYS AS (E'\n' || lower(username) || E'\n' || lower(coalesce(email, ''))) STORED
);

CREATE INDEX admin_search ON admin USING gin (search gin_trgm_ops);
CREATE INDEX admin_by_username ON admin (username, id);
CREATE INDEX admin_by_created_at ON admin (created_at, id);

CREATE UNIQUE INDEX admin__username ON admin (lower(username));
CREATE UNIQUE INDEX admin__email ON admin (lower(email));

CREATE VIEW admin_view AS
SELECT id, version, username, username AS name, coalesce(email, '') AS email, receive_copies, created_at, search FROM admin;

CREATE TABLE api_key (
	id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version    bigint NOT NULL DEFAULT 1,
	name       text NOT NULL,
	hash       bytea NOT NULL CONSTRAINT api_key__key UNIQUE CHECK (length(hash) = 32), -- SHA-256; the key itself is kept nowhere
	imported   boolean NOT NULL DEFAULT false, -- made elsewhere: carries no checksum
	owner_type text NOT NULL CHECK (owner_type IN ('admin', 'client', 'integration')),
	owner_id   bigint NOT NULL,
	expires_at timestamptz,
	created_at timestamptz NOT NULL DEFAULT now(),
	search     text NOT NULL GENERATED ALWAYS AS (E'\n' || lower(name)) STORED,
	admin_id   bigint GENERATED ALWAYS AS (CASE WHEN owner_type = 'admin' THEN owner_id END) STORED
		CONSTRAINT api_key__owner REFERENCES admin ON DELETE CASCADE
);

CREATE INDEX api_key_by_owner ON api_key (owner_type, owner_id, id);
CREATE INDEX api_key_search ON api_key USING gin (search gin_trgm_ops);
CREATE INDEX api_key_by_name ON api_key (name, id);
CREATE INDEX api_key_by_admin ON api_key (admin_id);
CREATE INDEX api_key_imported ON api_key (id) WHERE imported;

CREATE VIEW api_key_view AS
SELECT k.id, k.version, k.name, k.expires_at, k.search, k.owner_type, k.owner_id, a.username AS owner_name, '/' || k.owner_type || '/' || k.owner_id AS owner_url
FROM api_key k LEFT JOIN admin a ON a.id = k.admin_id;
