-- The schema of every service. Written by make schema: do not edit it.

CREATE TYPE river_job_state AS ENUM ('available', 'cancelled', 'completed', 'discarded', 'pending', 'retryable', 'running', 'scheduled');

CREATE SEQUENCE closing_token;

CREATE OR REPLACE FUNCTION river_job_state_in_bitmask(bitmask bit, state river_job_state)
 RETURNS boolean
 LANGUAGE sql
 IMMUTABLE
AS $function$
    SELECT CASE state
        WHEN 'available' THEN get_bit(bitmask, 7)
        WHEN 'cancelled' THEN get_bit(bitmask, 6)
        WHEN 'completed' THEN get_bit(bitmask, 5)
        WHEN 'discarded' THEN get_bit(bitmask, 4)
        WHEN 'pending'   THEN get_bit(bitmask, 3)
        WHEN 'retryable' THEN get_bit(bitmask, 2)
        WHEN 'running'   THEN get_bit(bitmask, 1)
        WHEN 'scheduled' THEN get_bit(bitmask, 0)
        ELSE 0
    END = 1;
$function$;

CREATE TABLE change (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	at timestamp with time zone NOT NULL DEFAULT now(),
	type text NOT NULL,
	targets jsonb NOT NULL,
	before jsonb,
	after jsonb,
	actor_url text,
	actor_name text,
	actor_key bigint,
	ip inet,
	request_id text,
	seq bigint,
	kind text,
	part text,
	action text,
	uuid uuid DEFAULT gen_random_uuid(),
	traceparent text
);
CREATE INDEX change_unnumbered ON change (id) WHERE seq IS NULL;
CREATE UNIQUE INDEX change_by_seq ON change (seq) WHERE seq IS NOT NULL;

CREATE TABLE change_reader (
	name text NOT NULL,
	seq bigint NOT NULL,
	CONSTRAINT change_reader_pkey PRIMARY KEY (name)
);

CREATE TABLE closing (
	type text NOT NULL,
	id bigint NOT NULL,
	token bigint NOT NULL DEFAULT nextval('closing_token'::regclass),
	agreed boolean NOT NULL DEFAULT false,
	until timestamp with time zone NOT NULL,
	CONSTRAINT closing_pkey PRIMARY KEY (type, id)
);

CREATE TABLE consumer (
	source text NOT NULL,
	seq bigint NOT NULL,
	stopped_at bigint,
	history uuid,
	change uuid,
	change_seq bigint,
	newest bigint,
	name text NOT NULL DEFAULT '',
	CONSTRAINT consumer_pkey PRIMARY KEY (source, name)
);

CREATE TABLE history (
	uuid uuid NOT NULL DEFAULT gen_random_uuid(),
	began bigint,
	ended bigint,
	CONSTRAINT history_pkey PRIMARY KEY (uuid)
);
CREATE UNIQUE INDEX history_now ON history ((true)) WHERE ended IS NULL;

CREATE TABLE idempotency (
	id bytea NOT NULL,
	fingerprint bytea NOT NULL,
	answer bytea NOT NULL,
	expires_at timestamp with time zone NOT NULL,
	CONSTRAINT idempotency_pkey PRIMARY KEY (id)
);
CREATE INDEX idempotency_by_expiry ON idempotency (expires_at);

CREATE TABLE idempotency_stripe (
	number smallint NOT NULL,
	CONSTRAINT idempotency_stripe_pkey PRIMARY KEY (number)
);

CREATE TABLE job_runner (
	id text NOT NULL,
	since timestamp with time zone NOT NULL DEFAULT now(),
	seen timestamp with time zone NOT NULL DEFAULT now(),
	CONSTRAINT job_runner_pkey PRIMARY KEY (id)
);

CREATE TABLE key_check (
	one boolean NOT NULL DEFAULT true,
	sealed bytea NOT NULL,
	CONSTRAINT key_check_pkey PRIMARY KEY (one),
	CONSTRAINT key_check_one_check CHECK (one)
);

CREATE TABLE lock (
	name text NOT NULL,
	number bigint NOT NULL,
	CONSTRAINT lock_pkey PRIMARY KEY (name, number)
);

CREATE TABLE maintenance (
	one boolean NOT NULL DEFAULT true,
	active boolean NOT NULL,
	since timestamp with time zone NOT NULL,
	reason text NOT NULL,
	CONSTRAINT maintenance_pkey PRIMARY KEY (one),
	CONSTRAINT maintenance_one_check CHECK (one)
);

CREATE TABLE message (
	n bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	id uuid NOT NULL DEFAULT gen_random_uuid(),
	receiver text NOT NULL,
	kind text NOT NULL,
	content jsonb NOT NULL,
	sealed bytea,
	request_id text,
	at timestamp with time zone NOT NULL DEFAULT now(),
	traceparent text,
	CONSTRAINT message_pkey PRIMARY KEY (n)
);
CREATE INDEX message_by_receiver ON message (receiver, n);

CREATE TABLE message_taken (
	id uuid NOT NULL,
	at timestamp with time zone NOT NULL DEFAULT now(),
	CONSTRAINT message_taken_pkey PRIMARY KEY (id)
);
CREATE INDEX message_taken_by_at ON message_taken (at);

CREATE TABLE ref (
	type text NOT NULL,
	id bigint NOT NULL,
	name text NOT NULL,
	version bigint NOT NULL,
	gone boolean NOT NULL DEFAULT false,
	detail jsonb,
	closing bigint,
	CONSTRAINT ref_pkey PRIMARY KEY (type, id)
);

CREATE TABLE river_job (
	id bigint NOT NULL DEFAULT nextval('river_job_id_seq'::regclass),
	state river_job_state NOT NULL DEFAULT 'available'::river_job_state,
	attempt smallint NOT NULL DEFAULT 0,
	max_attempts smallint NOT NULL DEFAULT 25,
	attempted_at timestamp with time zone,
	created_at timestamp with time zone NOT NULL DEFAULT now(),
	finalized_at timestamp with time zone,
	scheduled_at timestamp with time zone NOT NULL DEFAULT now(),
	priority smallint NOT NULL DEFAULT 1,
	args jsonb NOT NULL,
	attempted_by text[],
	errors jsonb[],
	kind text NOT NULL,
	metadata jsonb NOT NULL DEFAULT '{}'::jsonb,
	queue text NOT NULL DEFAULT 'default',
	tags character varying(255)[] NOT NULL DEFAULT '{}'::character varying[],
	unique_key bytea,
	unique_states bit(8),
	CONSTRAINT river_job_pkey PRIMARY KEY (id),
	CONSTRAINT finalized_or_finalized_at_null CHECK (finalized_at IS NULL AND (state <> ALL (ARRAY['cancelled'::river_job_state, 'completed'::river_job_state, 'discarded'::river_job_state])) OR finalized_at IS NOT NULL AND (state = ANY (ARRAY['cancelled'::river_job_state, 'completed'::river_job_state, 'discarded'::river_job_state]))),
	CONSTRAINT kind_length CHECK (char_length(kind) > 0 AND char_length(kind) < 128),
	CONSTRAINT max_attempts_is_positive CHECK (max_attempts > 0),
	CONSTRAINT priority_in_range CHECK (priority >= 1 AND priority <= 4),
	CONSTRAINT queue_length CHECK (char_length(queue) > 0 AND char_length(queue) < 128)
);
CREATE INDEX river_job_args_index ON river_job USING gin (args);
CREATE INDEX river_job_kind ON river_job (kind);
CREATE INDEX river_job_metadata_index ON river_job USING gin (metadata);
CREATE INDEX river_job_prioritized_fetching_index ON river_job (state, queue, priority, scheduled_at, id);
CREATE INDEX river_job_state_and_finalized_at_index ON river_job (state, finalized_at) WHERE finalized_at IS NOT NULL;
CREATE UNIQUE INDEX river_job_unique_idx ON river_job (unique_key) WHERE unique_key IS NOT NULL AND unique_states IS NOT NULL AND river_job_state_in_bitmask(unique_states, state);

CREATE UNLOGGED TABLE river_leader (
	elected_at timestamp with time zone NOT NULL,
	expires_at timestamp with time zone NOT NULL,
	leader_id text NOT NULL,
	name text NOT NULL DEFAULT 'default',
	CONSTRAINT river_leader_pkey PRIMARY KEY (name),
	CONSTRAINT leader_id_length CHECK (char_length(leader_id) > 0 AND char_length(leader_id) < 128),
	CONSTRAINT name_length CHECK (name = 'default')
);

CREATE TABLE river_migration (
	line text NOT NULL,
	version bigint NOT NULL,
	created_at timestamp with time zone NOT NULL DEFAULT now(),
	CONSTRAINT river_migration_pkey1 PRIMARY KEY (line, version),
	CONSTRAINT line_length CHECK (char_length(line) > 0 AND char_length(line) < 128),
	CONSTRAINT version_gte_1 CHECK (version >= 1)
);

CREATE TABLE river_notification (
	id bigint NOT NULL DEFAULT nextval('river_notification_id_seq'::regclass),
	created_at timestamp with time zone NOT NULL DEFAULT now(),
	payload text NOT NULL,
	topic text NOT NULL,
	CONSTRAINT river_notification_pkey PRIMARY KEY (id),
	CONSTRAINT topic_length CHECK (length(topic) > 0 AND length(topic) < 128)
);
CREATE INDEX river_notification_created_at_idx ON river_notification (created_at);
CREATE INDEX river_notification_topic_id_idx ON river_notification (topic, id);

CREATE TABLE river_queue (
	name text NOT NULL,
	created_at timestamp with time zone NOT NULL DEFAULT now(),
	metadata jsonb NOT NULL DEFAULT '{}'::jsonb,
	paused_at timestamp with time zone,
	updated_at timestamp with time zone NOT NULL DEFAULT CURRENT_TIMESTAMP,
	CONSTRAINT river_queue_pkey PRIMARY KEY (name)
);

CREATE TABLE sequencer (
	one boolean NOT NULL DEFAULT true,
	last bigint NOT NULL,
	relation oid NOT NULL DEFAULT 0,
	CONSTRAINT sequencer_pkey PRIMARY KEY (one),
	CONSTRAINT sequencer_one_check CHECK (one)
);

-- VIEW change_cursor: schema/views/change_cursor.sql
--	source text
--	seq bigint
--	stopped_at bigint
--	history uuid
--	change uuid
--	change_seq bigint
--	newest bigint
