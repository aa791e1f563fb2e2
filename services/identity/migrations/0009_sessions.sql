-- +goose Up
-- A session is a key that is renewed: its row stays, and its value changes.
ALTER TABLE api_key
	ADD COLUMN kind text NOT NULL DEFAULT 'lasting' CHECK (kind IN ('lasting', 'login', 'acting')),
	ADD COLUMN made_with bigint REFERENCES api_key ON DELETE CASCADE, -- of an acting session: the key that it ends with
	ADD COLUMN actor_type text CHECK (actor_type IN ('admin', 'client', 'integration')),
	ADD COLUMN actor_id bigint,
	ADD COLUMN ip inet,           -- of who began it
	ADD COLUMN credentials bigint, -- of a client's login: the version of what it was made with
	ADD CHECK ((kind = 'lasting') = (ip IS NULL) AND (kind = 'acting') = (actor_id IS NOT NULL) AND (actor_type IS NULL) = (actor_id IS NULL)),
	ADD CHECK (kind = 'lasting' OR expires_at IS NOT NULL);

CREATE INDEX api_key_made_with ON api_key (made_with) WHERE made_with IS NOT NULL;
CREATE INDEX api_key_sessions ON api_key (owner_type, owner_id, kind, expires_at) WHERE kind <> 'lasting';
CREATE INDEX api_key_session_ends ON api_key (expires_at) WHERE kind <> 'lasting';

-- Earlier values of sessions, which are good for a moment more.
CREATE TABLE session_value (
	hash   bytea PRIMARY KEY CHECK (length(hash) = 32),
	key_id bigint NOT NULL REFERENCES api_key ON DELETE CASCADE,
	until  timestamptz NOT NULL
);
CREATE INDEX session_value_by_key ON session_value (key_id, until);

CREATE OR REPLACE VIEW api_key_view AS
SELECT k.id, k.version, k.name, k.expires_at, k.search, k.owner_type, k.owner_id, coalesce(a.username, r.name) AS owner_name,
	'/' || k.owner_type || '/' || k.owner_id::text AS owner_url, k.hash, k.imported, k.bound, k.kind
FROM api_key k LEFT JOIN admin a ON a.id = k.admin_id LEFT JOIN ref r ON r.type = k.owner_type AND r.id = k.owner_id;

CREATE VIEW session_view AS
SELECT k.id, k.version, k.name, k.created_at, k.expires_at, k.kind = 'acting' AS acting, host(k.ip) AS ip, k.owner_type, k.owner_id,
	k.actor_id, k.actor_type, '/' || k.actor_type || '/' || k.actor_id::text AS actor_url, coalesce(a.username, r.name) AS actor_name
FROM api_key k LEFT JOIN admin a ON k.actor_type = 'admin' AND a.id = k.actor_id LEFT JOIN ref r ON r.type = k.actor_type AND r.id = k.actor_id
WHERE k.kind <> 'lasting' AND k.expires_at > now();

-- The networks that an account signed in from: there it is not locked out by others.
CREATE TABLE signed_in_from (
	owner_type text NOT NULL,
	owner_id   bigint NOT NULL,
	network    cidr NOT NULL,
	last_at    timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (owner_type, owner_id, network)
);

-- Logins by names that nobody has: counted, and never written.
CREATE TABLE unknown_name (
	network cidr NOT NULL,
	minute  timestamptz NOT NULL,
	tried   bigint NOT NULL DEFAULT 1,
	PRIMARY KEY (minute, network)
);

-- Which acting sessions stand in the log within the last hour.
CREATE TABLE acting_logged (
	actor_type text NOT NULL,
	actor_id   bigint NOT NULL,
	owner_type text NOT NULL,
	owner_id   bigint NOT NULL,
	at         timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (owner_type, owner_id, actor_type, actor_id)
);

-- The mails that accounts got of late about themselves, of which there are no more than so many an hour.
CREATE TABLE account_mail (
	id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	owner_type text NOT NULL,
	owner_id   bigint NOT NULL,
	at         timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX account_mail_by_owner ON account_mail (owner_type, owner_id, at);
