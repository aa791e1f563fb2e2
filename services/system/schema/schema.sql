-- The schema of the system service. Written by make schema: do not edit it.
-- The tables that every service has are in pkg/runtime/host/schema.sql.

CREATE OR REPLACE FUNCTION log_search(description text, user_name text, ip text, targets json)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN lower((((('
' || description) || COALESCE(('
' || user_name), '')) || COALESCE(('
' || ip), '')) || COALESCE((SELECT string_agg(('
' || (target.value ->> 'name')), '') AS string_agg FROM json_array_elements(log_search.targets) target(value)), '')));

CREATE TABLE acme_account (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	directory text NOT NULL,
	email text NOT NULL,
	location text NOT NULL,
	key bytea,
	CONSTRAINT acme_account_pkey PRIMARY KEY (id),
	CONSTRAINT acme_account_directory_email_key UNIQUE (directory, email)
);

CREATE TABLE acme_challenge (
	token text NOT NULL,
	type text NOT NULL,
	name text NOT NULL,
	key_auth text NOT NULL,
	created_at timestamp with time zone NOT NULL DEFAULT now(),
	CONSTRAINT acme_challenge_pkey PRIMARY KEY (token)
);

CREATE TABLE email_message (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	version bigint NOT NULL DEFAULT 1,
	uuid uuid NOT NULL DEFAULT gen_random_uuid(),
	template text NOT NULL,
	account text NOT NULL,
	to_name text NOT NULL,
	to_email text NOT NULL,
	subject text NOT NULL DEFAULT '',
	body text NOT NULL DEFAULT '',
	html text NOT NULL DEFAULT '',
	secret boolean NOT NULL,
	sealed bytea,
	status text NOT NULL,
	error text,
	attempts integer NOT NULL DEFAULT 0,
	created_at timestamp with time zone NOT NULL DEFAULT now(),
	sent_at timestamp with time zone,
	expires_at timestamp with time zone,
	CONSTRAINT email_message_pkey PRIMARY KEY (id),
	CONSTRAINT email_message_status_check CHECK (status = ANY (ARRAY['held', 'queued', 'sent', 'failed']))
);
CREATE INDEX email_message_by_account ON email_message (account, created_at);
CREATE INDEX email_message_by_created_at ON email_message (created_at, id);
CREATE INDEX email_message_by_status ON email_message (status, id);
CREATE INDEX email_message_by_template ON email_message (template, id);
CREATE INDEX email_message_by_to ON email_message (lower(to_email), id);

CREATE TABLE email_template (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	version bigint NOT NULL DEFAULT 1,
	name text NOT NULL,
	type text NOT NULL,
	subject text NOT NULL,
	body text NOT NULL,
	html text,
	search text NOT NULL GENERATED ALWAYS AS (((E'\n' || lower(name)) || E'\n') || lower(subject)) STORED,
	CONSTRAINT email_template_pkey PRIMARY KEY (id)
);
CREATE INDEX email_template_by_name ON email_template (name, id);
CREATE INDEX email_template_by_type ON email_template (type, id);
CREATE INDEX email_template_search ON email_template USING gin (search gin_trgm_ops);
CREATE UNIQUE INDEX email_template__name ON email_template (lower(name));

CREATE TABLE integration (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	version bigint NOT NULL DEFAULT 1,
	name text NOT NULL,
	subject text,
	body text,
	permissions text[] NOT NULL DEFAULT '{}'[],
	disabled boolean NOT NULL DEFAULT false,
	search text NOT NULL GENERATED ALWAYS AS (E'\n' || lower(name)) STORED,
	detaching boolean NOT NULL DEFAULT false,
	CONSTRAINT integration_pkey PRIMARY KEY (id)
);
CREATE INDEX integration_by_detaching ON integration (id) WHERE detaching;
CREATE INDEX integration_by_disabled ON integration (disabled, id);
CREATE INDEX integration_by_name ON integration (name, id);
CREATE INDEX integration_search ON integration USING gin (search gin_trgm_ops);
CREATE UNIQUE INDEX integration__name ON integration (lower(name));

CREATE TABLE integration_count (
	id bigint NOT NULL,
	clients bigint NOT NULL DEFAULT 0,
	keys bigint NOT NULL DEFAULT 0,
	servers bigint NOT NULL DEFAULT 0,
	CONSTRAINT integration_count_pkey PRIMARY KEY (id),
	CONSTRAINT integration_count_id_fkey FOREIGN KEY (id) REFERENCES integration(id) ON DELETE CASCADE
);

CREATE TABLE known_grant (
	name text NOT NULL,
	CONSTRAINT known_grant_pkey PRIMARY KEY (name)
);

CREATE TABLE license (
	id bigint NOT NULL,
	version bigint NOT NULL DEFAULT 1,
	text text NOT NULL DEFAULT '',
	refreshed_at timestamp with time zone,
	CONSTRAINT license_pkey PRIMARY KEY (id),
	CONSTRAINT license_id_check CHECK (id = 1)
);

CREATE TABLE log (
	id bigint NOT NULL,
	at timestamp with time zone NOT NULL,
	source text NOT NULL,
	seq bigint NOT NULL,
	type text NOT NULL,
	description text NOT NULL,
	user_url text,
	user_name text,
	user_key bigint,
	ip text,
	request_id text,
	targets json NOT NULL,
	changes json NOT NULL,
	mac bytea NOT NULL,
	CONSTRAINT log_pkey PRIMARY KEY (id),
	CONSTRAINT log_source_seq_key UNIQUE (source, seq)
);
CREATE INDEX log_by_at ON log (at, id);
CREATE INDEX log_by_type ON log (type, at, id);
CREATE INDEX log_by_user ON log (user_url, at, id);
CREATE INDEX log_search ON log USING gin (log_search(description, user_name, ip, targets) gin_trgm_ops);

CREATE TABLE log_checkpoint (
	id bigint NOT NULL,
	mac bytea NOT NULL,
	at timestamp with time zone NOT NULL,
	signature bytea NOT NULL,
	seqs jsonb NOT NULL DEFAULT '{}'::jsonb,
	CONSTRAINT log_checkpoint_pkey PRIMARY KEY (id)
);

CREATE TABLE log_countersigned (
	first bigint NOT NULL,
	last bigint NOT NULL,
	digest bytea NOT NULL,
	signature bytea NOT NULL,
	CONSTRAINT log_countersigned_pkey PRIMARY KEY (first),
	CONSTRAINT log_countersigned_check CHECK (last >= first)
);

CREATE TABLE log_head (
	one boolean NOT NULL DEFAULT true,
	id bigint NOT NULL,
	mac bytea NOT NULL,
	signature bytea NOT NULL,
	seqs jsonb NOT NULL DEFAULT '{}'::jsonb,
	checkpoint bytea NOT NULL DEFAULT '\x'::bytea,
	CONSTRAINT log_head_pkey PRIMARY KEY (one),
	CONSTRAINT log_head_one_check CHECK (one)
);

CREATE TABLE log_target (
	type text NOT NULL,
	target_id bigint NOT NULL,
	at timestamp with time zone NOT NULL,
	log_id bigint NOT NULL,
	user_url text,
	CONSTRAINT log_target_pkey PRIMARY KEY (type, target_id, at, log_id)
);
CREATE INDEX log_target_by_log ON log_target (log_id);
CREATE INDEX log_target_by_type ON log_target (type, at, log_id);
CREATE INDEX log_target_by_user ON log_target (type, target_id, user_url, at, log_id);
CREATE TRIGGER log_target_user BEFORE INSERT ON log_target FOR EACH ROW WHEN (new.user_url IS NULL) EXECUTE FUNCTION log_target_user(); -- schema/functions/log_target_user.sql

CREATE TABLE package (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	folder text NOT NULL,
	CONSTRAINT package_pkey PRIMARY KEY (id),
	CONSTRAINT package_folder_key UNIQUE (folder)
);

CREATE TABLE part (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	version bigint NOT NULL DEFAULT 1,
	name text NOT NULL,
	billing_id text,
	part_type text NOT NULL,
	search text NOT NULL GENERATED ALWAYS AS (((E'\n' || lower(name)) || E'\n') || lower(COALESCE(billing_id, ''))) STORED,
	CONSTRAINT part_pkey PRIMARY KEY (id),
	CONSTRAINT part_part_type_fkey FOREIGN KEY (part_type) REFERENCES part_type(name),
	CONSTRAINT part__name UNIQUE (part_type, name)
);
ALTER TABLE part ALTER COLUMN search SET STATISTICS 1000;
CREATE INDEX part_by_billing_id ON part (billing_id, id);
CREATE INDEX part_by_name ON part (name, id);
CREATE INDEX part_by_type ON part (part_type, id);
CREATE INDEX part_search ON part USING gin (search gin_trgm_ops);

CREATE TABLE part_type (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	name text NOT NULL,
	CONSTRAINT part_type_pkey PRIMARY KEY (id),
	CONSTRAINT part_type_name_check CHECK (name = lower(name)),
	CONSTRAINT part_type_name_key UNIQUE (name)
);

CREATE TABLE setting (
	id bigint NOT NULL,
	version bigint NOT NULL DEFAULT 1,
	group_id bigint NOT NULL,
	slug text NOT NULL,
	name text NOT NULL,
	type text NOT NULL,
	options text,
	validator text,
	default_value text NOT NULL,
	chosen text,
	fresh boolean NOT NULL DEFAULT true,
	CONSTRAINT setting_pkey PRIMARY KEY (id),
	CONSTRAINT setting_type_check CHECK (type = ANY (ARRAY['Text', 'Textarea', 'Select', 'Checkbox'])),
	CONSTRAINT setting_group_id_fkey FOREIGN KEY (group_id) REFERENCES setting_group(id),
	CONSTRAINT setting_slug_key UNIQUE (slug)
);
CREATE INDEX setting_by_group ON setting (group_id, id);

CREATE TABLE setting_group (
	id bigint NOT NULL,
	version bigint NOT NULL DEFAULT 1,
	name text NOT NULL,
	parent bigint,
	CONSTRAINT setting_group_pkey PRIMARY KEY (id)
);

CREATE TABLE ssl (
	id bigint NOT NULL,
	version bigint NOT NULL DEFAULT 1,
	edition uuid NOT NULL DEFAULT gen_random_uuid(),
	email text,
	required boolean NOT NULL DEFAULT false,
	ordered bigint NOT NULL DEFAULT 0,
	error text,
	name text,
	chain text,
	key bytea,
	not_after timestamp with time zone,
	renew_at timestamp with time zone,
	CONSTRAINT ssl_pkey PRIMARY KEY (id),
	CONSTRAINT ssl_check CHECK (num_nulls(name, chain, key, not_after, renew_at) = ANY (ARRAY[0, 5])),
	CONSTRAINT ssl_id_check CHECK (id = 1)
);

CREATE TABLE theme (
	id bigint NOT NULL,
	version bigint NOT NULL DEFAULT 1,
	custom_admin_html text,
	custom_client_html text,
	custom_css text,
	link_color text,
	logo text,
	main_bg text,
	nav_bg text,
	panel_alt_bg text,
	panel_bg text,
	side_nav_bg text,
	text_color text,
	CONSTRAINT theme_pkey PRIMARY KEY (id),
	CONSTRAINT theme_id_check CHECK (id = 1)
);

CREATE TABLE todo (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	slug text NOT NULL,
	done_by text NOT NULL,
	completed_at timestamp with time zone,
	CONSTRAINT todo_pkey PRIMARY KEY (id),
	CONSTRAINT todo_slug_key UNIQUE (slug)
);
CREATE INDEX todo_open ON todo (done_by) WHERE completed_at IS NULL;

CREATE TABLE webhook (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	version bigint NOT NULL DEFAULT 1,
	name text NOT NULL,
	url text NOT NULL,
	types text[] NOT NULL,
	enabled boolean NOT NULL,
	owner_url text NOT NULL,
	secret bytea,
	old_secret bytea,
	old_secret_until timestamp with time zone,
	created_at timestamp with time zone NOT NULL DEFAULT now(),
	search text NOT NULL GENERATED ALWAYS AS (((E'\n' || lower(name)) || E'\n') || lower(url)) STORED,
	resting text,
	failures integer NOT NULL DEFAULT 0,
	paused_until timestamp with time zone,
	CONSTRAINT webhook_pkey PRIMARY KEY (id)
);
CREATE INDEX webhook_by_name ON webhook (name, id);
CREATE INDEX webhook_by_owner ON webhook (owner_url, id);
CREATE INDEX webhook_search ON webhook USING gin (search gin_trgm_ops);

CREATE TABLE webhook_delivery (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	webhook_id bigint NOT NULL,
	event_id bigint NOT NULL,
	item text NOT NULL,
	cause text NOT NULL,
	status text NOT NULL DEFAULT 'waiting',
	attempts integer NOT NULL DEFAULT 0,
	next_at timestamp with time zone,
	created_at timestamp with time zone NOT NULL DEFAULT now(),
	tried_at timestamp with time zone,
	duration integer,
	answer_status integer,
	answer text,
	error text,
	traceparent text,
	CONSTRAINT webhook_delivery_pkey PRIMARY KEY (id),
	CONSTRAINT webhook_delivery_cause_check CHECK (cause = ANY (ARRAY['event', 'replay', 'test'])),
	CONSTRAINT webhook_delivery_check CHECK ((status = 'waiting') = (next_at IS NOT NULL)),
	CONSTRAINT webhook_delivery_status_check CHECK (status = ANY (ARRAY['waiting', 'delivered', 'failed'])),
	CONSTRAINT webhook_delivery_event_id_fkey FOREIGN KEY (event_id) REFERENCES webhook_event(id)
);
CREATE INDEX webhook_delivery_by_age ON webhook_delivery (created_at);
CREATE INDEX webhook_delivery_by_created_at ON webhook_delivery (webhook_id, created_at, id);
CREATE INDEX webhook_delivery_by_event ON webhook_delivery (event_id);
CREATE INDEX webhook_delivery_by_status ON webhook_delivery (webhook_id, status, created_at, id);
CREATE INDEX webhook_delivery_due ON webhook_delivery (webhook_id, next_at) WHERE status = 'waiting';
CREATE INDEX webhook_delivery_item ON webhook_delivery (webhook_id, item, id) WHERE status = 'waiting';

CREATE TABLE webhook_event (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	uuid text NOT NULL,
	type text NOT NULL,
	at timestamp with time zone NOT NULL,
	payload text NOT NULL,
	CONSTRAINT webhook_event_pkey PRIMARY KEY (id)
);

-- VIEW integration_view: schema/views/integration_view.sql
--	id bigint
--	version bigint
--	name text
--	subject text
--	body text
--	disabled boolean
--	search text
--	clients bigint
--	keys bigint
--	permissions bigint
--	detaching boolean
--	servers bigint

-- VIEW log_by_target: schema/views/log_by_target.sql
--	id bigint
--	created_at timestamp with time zone
--	target_type text
--	target_id bigint
--	type text
--	user_url text
--	search text

-- VIEW log_by_target_type: schema/views/log_by_target_type.sql
--	id bigint
--	created_at timestamp with time zone
--	target_type text
--	type text
--	user_url text

-- VIEW log_item_view: schema/views/log_item_view.sql
--	id bigint
--	created_at timestamp with time zone
--	ip text
--	type text
--	"desc" text
--	user_id bigint
--	user_name text
--	user_url text
--	targets json
--	search text
--	data_description text
--	data_changes json

-- VIEW log_view: schema/views/log_view.sql
--	id bigint
--	created_at timestamp with time zone
--	ip text
--	type text
--	"desc" text
--	user_id bigint
--	user_name text
--	user_url text
--	targets json
--	search text

-- VIEW part_view: schema/views/part_view.sql
--	id bigint
--	version bigint
--	name text
--	billing_id text
--	part_type text
--	search text
--	part_type_id bigint
--	part_type_name text

-- VIEW setting_group_view: schema/views/setting_group_view.sql
--	id bigint
--	version bigint
--	name text
--	parent bigint
--	settings jsonb

-- VIEW setting_view: schema/views/setting_view.sql
--	id bigint
--	version bigint
--	group_id bigint
--	slug text
--	name text
--	type text
--	options text
--	validator text
--	default_value text
--	text text
--	value bigint

-- VIEW webhook_delivery_view: schema/views/webhook_delivery_view.sql
--	id bigint
--	webhook_id bigint
--	event text
--	type text
--	cause text
--	status text
--	attempts integer
--	next_at timestamp with time zone
--	created_at timestamp with time zone
--	tried_at timestamp with time zone
--	duration integer
--	answer_status integer
--	answer text
--	error text
--	payload text

-- VIEW webhook_view: schema/views/webhook_view.sql
--	id bigint
--	version bigint
--	name text
--	url text
--	types text[]
--	enabled boolean
--	owner_url text
--	owner_id bigint
--	owner_type text
--	old_secret_until timestamp with time zone
--	created_at timestamp with time zone
--	search text
--	resting text
