-- The schema of the identity service. Written by make schema: do not edit it.
-- The tables that every service has are in pkg/runtime/host/schema.sql.

CREATE TABLE account_mail (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	owner_type text NOT NULL,
	owner_id bigint NOT NULL,
	at timestamp with time zone NOT NULL DEFAULT now(),
	CONSTRAINT account_mail_pkey PRIMARY KEY (id)
);
CREATE INDEX account_mail_by_owner ON account_mail (owner_type, owner_id, at);

CREATE TABLE acting_logged (
	actor_type text NOT NULL,
	actor_id bigint NOT NULL,
	owner_type text NOT NULL,
	owner_id bigint NOT NULL,
	at timestamp with time zone NOT NULL DEFAULT now(),
	CONSTRAINT acting_logged_pkey PRIMARY KEY (owner_type, owner_id, actor_type, actor_id)
);

CREATE TABLE admin (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	version bigint NOT NULL DEFAULT 1,
	username text NOT NULL,
	email text,
	password_hash text,
	receive_copies boolean NOT NULL DEFAULT false,
	permissions text[] NOT NULL DEFAULT '{}'[],
	created_at timestamp with time zone NOT NULL DEFAULT now(),
	search text NOT NULL GENERATED ALWAYS AS (((E'\n' || lower(username)) || E'\n') || lower(COALESCE(email, ''))) STORED,
	disabled boolean NOT NULL DEFAULT false,
	CONSTRAINT admin_pkey PRIMARY KEY (id),
	CONSTRAINT admin_username_check CHECK (username <> '')
);
CREATE INDEX admin_by_created_at ON admin (created_at, id);
CREATE INDEX admin_by_disabled ON admin (disabled, id);
CREATE INDEX admin_by_email ON admin (lower(COALESCE(email, '')));
CREATE INDEX admin_by_username ON admin (username, id);
CREATE INDEX admin_search ON admin USING gin (search gin_trgm_ops);
CREATE UNIQUE INDEX admin__email ON admin (lower(email));
CREATE UNIQUE INDEX admin__username ON admin (lower(username));

CREATE TABLE api_key (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	version bigint NOT NULL DEFAULT 1,
	name text NOT NULL,
	hash bytea NOT NULL,
	imported boolean NOT NULL DEFAULT false,
	owner_type text NOT NULL,
	owner_id bigint NOT NULL,
	expires_at timestamp with time zone,
	created_at timestamp with time zone NOT NULL DEFAULT now(),
	search text NOT NULL GENERATED ALWAYS AS (E'\n' || lower(name)) STORED,
	admin_id bigint GENERATED ALWAYS AS (CASE WHEN owner_type = 'admin' THEN owner_id ELSE NULL::bigint END) STORED,
	bound text[],
	kind text NOT NULL DEFAULT 'lasting',
	made_with bigint,
	actor_type text,
	actor_id bigint,
	ip inet,
	credentials bigint,
	last_used_at timestamp with time zone,
	allowed_cidrs text[] NOT NULL DEFAULT '{}'[],
	warned_for timestamp with time zone,
	agent text NOT NULL DEFAULT '',
	session_cidrs text[] NOT NULL DEFAULT '{}'[],
	maker_id bigint,
	CONSTRAINT api_key_pkey PRIMARY KEY (id),
	CONSTRAINT api_key_actor_type_check CHECK (actor_type = ANY (ARRAY['admin', 'client', 'integration'])),
	CONSTRAINT api_key_check CHECK ((kind = 'lasting') = (ip IS NULL) AND (kind = 'acting') = (actor_id IS NOT NULL) AND (actor_type IS NULL) = (actor_id IS NULL)),
	CONSTRAINT api_key_check1 CHECK (kind = 'lasting' OR expires_at IS NOT NULL),
	CONSTRAINT api_key_hash_check CHECK (length(hash) = 32),
	CONSTRAINT api_key_kind_check CHECK (kind = ANY (ARRAY['lasting', 'login', 'acting'])),
	CONSTRAINT api_key_owner_type_check CHECK (owner_type = ANY (ARRAY['admin', 'client', 'integration'])),
	CONSTRAINT api_key__owner FOREIGN KEY (admin_id) REFERENCES admin(id) ON DELETE CASCADE,
	CONSTRAINT api_key_made_with_fkey FOREIGN KEY (made_with) REFERENCES api_key(id) ON DELETE CASCADE,
	CONSTRAINT api_key__key UNIQUE (hash)
);
CREATE INDEX api_key_by_admin ON api_key (admin_id);
CREATE INDEX api_key_by_name ON api_key (name, id);
CREATE INDEX api_key_by_owner ON api_key (owner_type, owner_id, id);
CREATE INDEX api_key_by_owner_url ON api_key (((('/' || owner_type) || '/') || owner_id::text), id);
CREATE INDEX api_key_expires ON api_key (expires_at) WHERE kind = 'lasting';
CREATE INDEX api_key_imported ON api_key (id) WHERE imported;
CREATE INDEX api_key_made_with ON api_key (made_with) WHERE made_with IS NOT NULL;
CREATE INDEX api_key_search ON api_key USING gin (search gin_trgm_ops);
CREATE INDEX api_key_session_ends ON api_key (expires_at) WHERE kind <> 'lasting';
CREATE INDEX api_key_sessions ON api_key (owner_type, owner_id, kind, expires_at) WHERE kind <> 'lasting';
CREATE INDEX api_key_used ON api_key (COALESCE(last_used_at, created_at)) WHERE kind = 'lasting';

CREATE TABLE attempt (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	what text NOT NULL,
	owner_type text NOT NULL,
	owner_id bigint NOT NULL,
	name text NOT NULL,
	expires_at timestamp with time zone,
	caller jsonb NOT NULL,
	CONSTRAINT attempt_pkey PRIMARY KEY (id),
	CONSTRAINT attempt_what_check CHECK (what = ANY (ARRAY['login', 'reset']))
);

CREATE TABLE authenticator (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	version bigint NOT NULL DEFAULT 1,
	owner_type text NOT NULL,
	owner_id bigint NOT NULL,
	admin_id bigint GENERATED ALWAYS AS (CASE WHEN owner_type = 'admin' THEN owner_id ELSE NULL::bigint END) STORED,
	method_id bigint NOT NULL,
	value text,
	secret bytea,
	step bigint NOT NULL DEFAULT 0,
	verified boolean NOT NULL DEFAULT false,
	name text,
	domain text,
	handle bytea,
	credential bytea,
	public_key bytea,
	counter bigint NOT NULL DEFAULT 0,
	copied boolean NOT NULL DEFAULT false,
	transports text[] NOT NULL DEFAULT '{}'[],
	CONSTRAINT authenticator_pkey PRIMARY KEY (id),
	CONSTRAINT authenticator_check CHECK ((method_id = 2) = (value IS NOT NULL)),
	CONSTRAINT authenticator_check1 CHECK (method_id <> 3 OR NOT verified OR credential IS NOT NULL AND public_key IS NOT NULL AND handle IS NOT NULL AND domain IS NOT NULL),
	CONSTRAINT authenticator_name_check CHECK (name <> ''),
	CONSTRAINT authenticator_owner_type_check CHECK (owner_type = ANY (ARRAY['admin', 'client'])),
	CONSTRAINT authenticator_admin_id_fkey FOREIGN KEY (admin_id) REFERENCES admin(id) ON DELETE CASCADE,
	CONSTRAINT authenticator_method_id_fkey FOREIGN KEY (method_id) REFERENCES verify_method(id),
	CONSTRAINT authenticator__credential UNIQUE (credential)
);
CREATE INDEX authenticator_by_admin ON authenticator (admin_id);
CREATE INDEX authenticator_by_owner ON authenticator (owner_type, owner_id, id);

CREATE TABLE failed_login (
	owner_type text NOT NULL,
	owner_id bigint NOT NULL,
	kind text NOT NULL,
	count bigint NOT NULL DEFAULT 1,
	since timestamp with time zone NOT NULL DEFAULT now(),
	CONSTRAINT failed_login_pkey PRIMARY KEY (owner_type, owner_id, kind),
	CONSTRAINT failed_login_kind_check CHECK (kind = ANY (ARRAY['password', 'code']))
);
CREATE INDEX failed_login_since ON failed_login (since);

CREATE TABLE known_grant (
	name text NOT NULL,
	CONSTRAINT known_grant_pkey PRIMARY KEY (name)
);

CREATE TABLE openid_login (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	provider_id bigint NOT NULL,
	hash bytea NOT NULL,
	challenge bytea NOT NULL,
	nonce text NOT NULL,
	verifier bytea,
	came_back boolean NOT NULL DEFAULT false,
	admin_id bigint,
	expires_at timestamp with time zone NOT NULL,
	network cidr,
	CONSTRAINT openid_login_pkey PRIMARY KEY (id),
	CONSTRAINT openid_login_challenge_check CHECK (length(challenge) = 32),
	CONSTRAINT openid_login_hash_check CHECK (length(hash) = 32),
	CONSTRAINT openid_login_admin_id_fkey FOREIGN KEY (admin_id) REFERENCES admin(id) ON DELETE CASCADE,
	CONSTRAINT openid_login_provider_id_fkey FOREIGN KEY (provider_id) REFERENCES openid_provider(id) ON DELETE CASCADE,
	CONSTRAINT openid_login_hash_key UNIQUE (hash)
);
CREATE INDEX openid_login_admin ON openid_login (admin_id);
CREATE INDEX openid_login_ends ON openid_login (expires_at);
CREATE INDEX openid_login_network ON openid_login (network, id);
CREATE INDEX openid_login_provider ON openid_login (provider_id);

CREATE TABLE openid_provider (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	version bigint NOT NULL DEFAULT 1,
	name text NOT NULL,
	issuer text NOT NULL,
	client_id text NOT NULL,
	client_secret bytea,
	domains text[] NOT NULL DEFAULT '{}'[],
	makes_admins boolean NOT NULL DEFAULT false,
	permissions text[] NOT NULL DEFAULT '{}'[],
	disabled boolean NOT NULL DEFAULT false,
	CONSTRAINT openid_provider_pkey PRIMARY KEY (id),
	CONSTRAINT openid_provider_name_check CHECK (name <> ''),
	CONSTRAINT openid_provider__name UNIQUE (name)
);

CREATE TABLE openid_subject (
	issuer text NOT NULL,
	subject text NOT NULL,
	admin_id bigint NOT NULL,
	CONSTRAINT openid_subject_pkey PRIMARY KEY (issuer, subject),
	CONSTRAINT openid_subject_admin_id_fkey FOREIGN KEY (admin_id) REFERENCES admin(id) ON DELETE CASCADE,
	CONSTRAINT openid_subject_once UNIQUE (admin_id, issuer)
);

CREATE TABLE password_reset (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	owner_type text,
	owner_id bigint,
	credentials bigint NOT NULL DEFAULT 0,
	welcome boolean NOT NULL DEFAULT false,
	ip inet,
	hash bytea,
	expires_at timestamp with time zone NOT NULL,
	CONSTRAINT password_reset_pkey PRIMARY KEY (id),
	CONSTRAINT password_reset_check CHECK ((owner_type IS NULL) = (owner_id IS NULL)),
	CONSTRAINT password_reset_hash_check CHECK (length(hash) = 32)
);
CREATE INDEX password_reset_by_owner ON password_reset (owner_type, owner_id);
CREATE INDEX password_reset_ends ON password_reset (expires_at);

CREATE TABLE recovery_code (
	hash bytea NOT NULL,
	owner_type text NOT NULL,
	owner_id bigint NOT NULL,
	admin_id bigint GENERATED ALWAYS AS (CASE WHEN owner_type = 'admin' THEN owner_id ELSE NULL::bigint END) STORED,
	CONSTRAINT recovery_code_pkey PRIMARY KEY (hash),
	CONSTRAINT recovery_code_hash_check CHECK (length(hash) = 32),
	CONSTRAINT recovery_code_admin_id_fkey FOREIGN KEY (admin_id) REFERENCES admin(id) ON DELETE CASCADE
);
CREATE INDEX recovery_code_by_admin ON recovery_code (admin_id);
CREATE INDEX recovery_code_by_owner ON recovery_code (owner_type, owner_id);

CREATE TABLE session_value (
	hash bytea NOT NULL,
	key_id bigint NOT NULL,
	until timestamp with time zone NOT NULL,
	CONSTRAINT session_value_pkey PRIMARY KEY (hash),
	CONSTRAINT session_value_hash_check CHECK (length(hash) = 32),
	CONSTRAINT session_value_key_id_fkey FOREIGN KEY (key_id) REFERENCES api_key(id) ON DELETE CASCADE
);
CREATE INDEX session_value_by_key ON session_value (key_id, until);

CREATE TABLE setting_copy (
	one boolean NOT NULL DEFAULT true,
	"values" jsonb NOT NULL,
	CONSTRAINT setting_copy_pkey PRIMARY KEY (one),
	CONSTRAINT setting_copy_one_check CHECK (one)
);

CREATE TABLE signed_in_from (
	owner_type text NOT NULL,
	owner_id bigint NOT NULL,
	network cidr NOT NULL,
	last_at timestamp with time zone NOT NULL DEFAULT now(),
	CONSTRAINT signed_in_from_pkey PRIMARY KEY (owner_type, owner_id, network)
);

CREATE TABLE sso_code (
	hash bytea NOT NULL,
	owner_type text NOT NULL,
	owner_id bigint NOT NULL,
	key_id bigint NOT NULL,
	actor_type text NOT NULL,
	actor_id bigint NOT NULL,
	actor_name text NOT NULL,
	bound text[],
	credentials bigint NOT NULL DEFAULT 0,
	expires_at timestamp with time zone NOT NULL,
	CONSTRAINT sso_code_pkey PRIMARY KEY (hash),
	CONSTRAINT sso_code_hash_check CHECK (length(hash) = 32),
	CONSTRAINT sso_code_key_id_fkey FOREIGN KEY (key_id) REFERENCES api_key(id) ON DELETE CASCADE
);
CREATE INDEX sso_code_by_key ON sso_code (key_id);
CREATE INDEX sso_code_by_owner ON sso_code (owner_type, owner_id);
CREATE INDEX sso_code_ends ON sso_code (expires_at);

CREATE TABLE unknown_name (
	network cidr NOT NULL,
	minute timestamp with time zone NOT NULL,
	tried bigint NOT NULL DEFAULT 1,
	CONSTRAINT unknown_name_pkey PRIMARY KEY (minute, network)
);

CREATE TABLE verify_code (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	version bigint NOT NULL DEFAULT 1,
	owner_type text NOT NULL,
	owner_id bigint NOT NULL,
	admin_id bigint GENERATED ALWAYS AS (CASE WHEN owner_type = 'admin' THEN owner_id ELSE NULL::bigint END) STORED,
	auth_id bigint,
	key_id bigint,
	challenge bytea,
	credentials bigint NOT NULL DEFAULT 0,
	token bytea,
	tries integer NOT NULL DEFAULT 0,
	expires_at timestamp with time zone NOT NULL,
	confirmed_at timestamp with time zone,
	signed bytea,
	origin text NOT NULL DEFAULT 'login',
	address inet,
	mailed_at timestamp with time zone,
	CONSTRAINT verify_code_pkey PRIMARY KEY (id),
	CONSTRAINT verify_code_challenge_check CHECK (length(challenge) = 32),
	CONSTRAINT verify_code_check CHECK (key_id IS NOT NULL OR challenge IS NOT NULL),
	CONSTRAINT verify_code_origin_check CHECK (origin = ANY (ARRAY['login', 'device', 'session'])),
	CONSTRAINT verify_code_admin_id_fkey FOREIGN KEY (admin_id) REFERENCES admin(id) ON DELETE CASCADE,
	CONSTRAINT verify_code_auth_id_fkey FOREIGN KEY (auth_id) REFERENCES authenticator(id) ON DELETE CASCADE,
	CONSTRAINT verify_code_key_id_fkey FOREIGN KEY (key_id) REFERENCES api_key(id) ON DELETE CASCADE,
	CONSTRAINT verify_code_challenge_key UNIQUE (challenge)
);
CREATE INDEX verify_code_by_admin ON verify_code (admin_id);
CREATE INDEX verify_code_by_auth ON verify_code (auth_id);
CREATE INDEX verify_code_by_key ON verify_code (key_id);
CREATE INDEX verify_code_by_owner ON verify_code (owner_type, owner_id, expires_at);
CREATE INDEX verify_code_ends ON verify_code (expires_at);

CREATE TABLE verify_method (
	id bigint NOT NULL,
	version bigint NOT NULL DEFAULT 1,
	name text NOT NULL,
	description text,
	CONSTRAINT verify_method_pkey PRIMARY KEY (id),
	CONSTRAINT verify_method_name_check CHECK (name <> ''),
	CONSTRAINT verify_method__name UNIQUE (name)
);

-- VIEW admin_view: schema/views/admin_view.sql
--	id bigint
--	version bigint
--	username text
--	name text
--	email text
--	receive_copies boolean
--	created_at timestamp with time zone
--	search text
--	disabled boolean

-- VIEW api_key_view: schema/views/api_key_view.sql
--	id bigint
--	version bigint
--	name text
--	expires_at timestamp with time zone
--	search text
--	owner_type text
--	owner_id bigint
--	owner_name text
--	owner_url text
--	hash bytea
--	imported boolean
--	bound text[]
--	kind text
--	last_used_at timestamp with time zone
--	allowed_cidrs text[]
--	created_at timestamp with time zone
--	session_cidrs text[]
--	maker_id bigint

-- VIEW authenticator_view: schema/views/authenticator_view.sql
--	id bigint
--	version bigint
--	owner_type text
--	owner_id bigint
--	owner_name text
--	owner_url text
--	method_id bigint
--	method_name text
--	value text
--	verified boolean
--	name text
--	title text

-- VIEW session_view: schema/views/session_view.sql
--	id bigint
--	version bigint
--	name text
--	created_at timestamp with time zone
--	expires_at timestamp with time zone
--	acting boolean
--	ip text
--	owner_type text
--	owner_id bigint
--	actor_id bigint
--	actor_type text
--	actor_url text
--	actor_name text
--	last_used_at timestamp with time zone
--	agent text

-- VIEW verify_code_view: schema/views/verify_code_view.sql
--	id bigint
--	version bigint
--	owner_type text
--	owner_id bigint
--	key_id bigint
--	expires_at timestamp with time zone
--	confirmed_at timestamp with time zone
--	auth_id bigint
--	auth_method_id bigint
--	auth_method_name text
--	auth_verified boolean
