-- The schema of the pxe service. Written by make schema: do not edit it.
-- The tables that every service has are in pkg/runtime/host/schema.sql.

CREATE SEQUENCE install_revision;

CREATE OR REPLACE FUNCTION array_to_text(text[])
 RETURNS text
 LANGUAGE sql
 IMMUTABLE
RETURN array_to_string($1, '
');

CREATE TABLE boot_script (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	version bigint NOT NULL DEFAULT 1,
	name text NOT NULL,
	description text,
	body text NOT NULL,
	problem text,
	search text NOT NULL GENERATED ALWAYS AS (((E'\n' || lower(name)) || E'\n') || lower(COALESCE(description, ''))) STORED,
	CONSTRAINT boot_script_pkey PRIMARY KEY (id),
	CONSTRAINT boot_script__name UNIQUE (name)
);
CREATE INDEX boot_script_by_name ON boot_script (name, id);
CREATE INDEX boot_script_search ON boot_script USING gin (search gin_trgm_ops);

CREATE TABLE dhcp_server (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	version bigint NOT NULL DEFAULT 1,
	name text NOT NULL,
	http_host text NOT NULL,
	http_port integer,
	http_use_https boolean NOT NULL,
	http_api_key bytea,
	search text NOT NULL GENERATED ALWAYS AS (((E'\n' || lower(name)) || E'\n') || lower(http_host)) STORED,
	http_fingerprint text,
	CONSTRAINT dhcp_server_pkey PRIMARY KEY (id),
	CONSTRAINT dhcp_server__name UNIQUE (name)
);
CREATE INDEX dhcp_server_by_host ON dhcp_server (http_host, id);
CREATE INDEX dhcp_server_by_name ON dhcp_server (name, id);
CREATE INDEX dhcp_server_search ON dhcp_server USING gin (search gin_trgm_ops);

CREATE TABLE discovery (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	version bigint NOT NULL DEFAULT 1,
	name text NOT NULL,
	address text NOT NULL,
	facts jsonb NOT NULL,
	dhcp_server_id bigint,
	first_seen_at timestamp with time zone NOT NULL,
	seen_at timestamp with time zone NOT NULL,
	CONSTRAINT discovery_pkey PRIMARY KEY (id),
	CONSTRAINT discovery_dhcp_server_id_fkey FOREIGN KEY (dhcp_server_id) REFERENCES dhcp_server(id) ON DELETE SET NULL,
	CONSTRAINT discovery_name_key UNIQUE (name)
);
CREATE INDEX discovery_by_dhcp_server ON discovery (dhcp_server_id);
CREATE INDEX discovery_by_seen_at ON discovery (seen_at, id);

CREATE TABLE driver (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	version bigint NOT NULL DEFAULT 1,
	name text NOT NULL,
	content text NOT NULL,
	search text NOT NULL GENERATED ALWAYS AS (E'\n' || lower(name)) STORED,
	CONSTRAINT driver_pkey PRIMARY KEY (id),
	CONSTRAINT driver__name UNIQUE (name)
);
CREATE INDEX driver_by_name ON driver (name, id);
CREATE INDEX driver_search ON driver USING gin (search gin_trgm_ops);

CREATE TABLE driver_upload (
	id text NOT NULL,
	owner text NOT NULL,
	size bigint NOT NULL,
	metadata text NOT NULL,
	file_id bigint,
	sha256 text,
	expires_at timestamp with time zone NOT NULL,
	CONSTRAINT driver_upload_pkey PRIMARY KEY (id),
	CONSTRAINT driver_upload_file_id_fkey FOREIGN KEY (file_id) REFERENCES stored_file(id) ON DELETE SET NULL
);
CREATE INDEX driver_upload_by_expiry ON driver_upload (expires_at);
CREATE INDEX driver_upload_by_file ON driver_upload (file_id);
CREATE INDEX driver_upload_by_owner ON driver_upload (owner);

CREATE TABLE file_server (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	version bigint NOT NULL DEFAULT 1,
	name text NOT NULL,
	install_max_concurrent integer NOT NULL,
	group_type text GENERATED ALWAYS AS ('group') STORED,
	group_id bigint,
	parent_id bigint,
	http_host text NOT NULL,
	http_port integer,
	http_use_https boolean NOT NULL,
	http_api_key bytea,
	ssh_port integer NOT NULL,
	ssh_public_key text NOT NULL,
	search text NOT NULL GENERATED ALWAYS AS (((E'\n' || lower(name)) || E'\n') || lower(http_host)) STORED,
	http_fingerprint text,
	ssh_use_sftp boolean NOT NULL DEFAULT false,
	CONSTRAINT file_server_pkey PRIMARY KEY (id),
	CONSTRAINT file_server__group_id FOREIGN KEY (group_type, group_id) REFERENCES ref(type, id),
	CONSTRAINT file_server__parent_id FOREIGN KEY (parent_id) REFERENCES file_server(id),
	CONSTRAINT file_server__name UNIQUE (name)
);
CREATE INDEX file_server_by_group ON file_server (group_id, id);
CREATE INDEX file_server_by_host ON file_server (http_host, id);
CREATE INDEX file_server_by_name ON file_server (name, id);
CREATE INDEX file_server_by_parent ON file_server (parent_id, id);
CREATE INDEX file_server_search ON file_server USING gin (search gin_trgm_ops);

CREATE TABLE file_sync (
	server_id bigint NOT NULL,
	status text NOT NULL,
	from_id bigint,
	again boolean NOT NULL DEFAULT false,
	attempt integer NOT NULL DEFAULT 0,
	files bigint NOT NULL DEFAULT 0,
	files_total bigint NOT NULL DEFAULT 0,
	bytes bigint NOT NULL DEFAULT 0,
	bytes_total bigint NOT NULL DEFAULT 0,
	error text,
	asked_at timestamp with time zone NOT NULL,
	started_at timestamp with time zone,
	finished_at timestamp with time zone,
	CONSTRAINT file_sync_pkey PRIMARY KEY (server_id),
	CONSTRAINT file_sync_server_id_fkey FOREIGN KEY (server_id) REFERENCES file_server(id) ON DELETE CASCADE
);
CREATE INDEX file_sync_running ON file_sync (from_id) WHERE status = 'running';

CREATE TABLE install (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	version bigint NOT NULL DEFAULT 1,
	status text NOT NULL DEFAULT 'waiting',
	step text,
	progress integer NOT NULL DEFAULT 0,
	error text,
	attempt integer NOT NULL DEFAULT 1,
	revision bigint NOT NULL DEFAULT nextval('install_revision'::regclass),
	first_revision bigint NOT NULL DEFAULT 0,
	granted boolean NOT NULL DEFAULT false,
	asked_at timestamp with time zone,
	stage_at timestamp with time zone NOT NULL DEFAULT now(),
	seen_at timestamp with time zone,
	created_at timestamp with time zone NOT NULL DEFAULT now(),
	started_at timestamp with time zone,
	finished_at timestamp with time zone,
	requests bigint NOT NULL DEFAULT 0,
	profile_id bigint NOT NULL,
	profile_name text NOT NULL,
	host_macs text[] NOT NULL,
	host_hostname text NOT NULL,
	host_disk text,
	host_firmware text NOT NULL,
	host_nameservers text NOT NULL,
	host_ipv4_address text,
	host_ipv4_gateway text,
	host_ipv6_address text,
	host_ipv6_gateway text,
	host_vlan integer,
	host_entity_type text GENERATED ALWAYS AS ('entity') STORED,
	host_entity_id bigint NOT NULL,
	ssh_keys text NOT NULL,
	variables jsonb NOT NULL,
	client_type text GENERATED ALWAYS AS ('client') STORED,
	client_id bigint,
	client_email text,
	dhcp_server_id bigint NOT NULL,
	dhcp_server_name text NOT NULL,
	file_server_id bigint,
	file_server_name text,
	password bytea,
	token bytea,
	search text NOT NULL GENERATED ALWAYS AS (((E'\n' || lower(host_hostname)) || E'\n') || array_to_text(host_macs)) STORED,
	address_left boolean NOT NULL DEFAULT false,
	leaving boolean NOT NULL DEFAULT false,
	told_at timestamp with time zone,
	forced text[] NOT NULL DEFAULT '{}'[],
	by_client boolean NOT NULL DEFAULT false,
	owner_left boolean NOT NULL DEFAULT false,
	held boolean NOT NULL DEFAULT false,
	CONSTRAINT install_pkey PRIMARY KEY (id),
	CONSTRAINT install_status_check CHECK (status = ANY (ARRAY['waiting', 'booting', 'installing', 'installed', 'failed', 'cancelled'])),
	CONSTRAINT install__client FOREIGN KEY (client_type, client_id) REFERENCES ref(type, id),
	CONSTRAINT install__host__entity FOREIGN KEY (host_entity_type, host_entity_id) REFERENCES ref(type, id)
);
CREATE INDEX install_by_client ON install (client_id, id);
CREATE INDEX install_by_created_at ON install (created_at, id);
CREATE INDEX install_by_dhcp_server ON install (dhcp_server_id, revision);
CREATE INDEX install_by_entity ON install (host_entity_id);
CREATE INDEX install_by_name ON install (host_hostname, id);
CREATE INDEX install_by_profile ON install (profile_id, id);
CREATE INDEX install_by_status ON install (status, id);
CREATE INDEX install_search ON install USING gin (search gin_trgm_ops);
CREATE INDEX install_under_way ON install (file_server_id) WHERE status = ANY (ARRAY['waiting', 'booting', 'installing']);
CREATE INDEX install_under_way_by_dhcp_server ON install (dhcp_server_id) WHERE status = ANY (ARRAY['waiting', 'booting', 'installing']);
CREATE UNIQUE INDEX install__host__entity ON install (host_entity_id) WHERE status = ANY (ARRAY['waiting', 'booting', 'installing']);
CREATE TRIGGER install_macs AFTER INSERT OR UPDATE OF status ON install FOR EACH ROW EXECUTE FUNCTION install_macs(); -- schema/functions/install_macs.sql

CREATE TABLE install_mac (
	install_id bigint NOT NULL,
	mac text NOT NULL,
	under_way boolean NOT NULL DEFAULT true,
	taken bigint NOT NULL DEFAULT nextval('install_revision'::regclass),
	CONSTRAINT install_mac_pkey PRIMARY KEY (install_id, mac),
	CONSTRAINT install_mac_install_id_fkey FOREIGN KEY (install_id) REFERENCES install(id) ON DELETE CASCADE
);
CREATE INDEX install_mac_taken ON install_mac (mac, taken);
CREATE UNIQUE INDEX install__host__macs ON install_mac (mac) WHERE under_way;

CREATE TABLE install_report (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	install_id bigint NOT NULL,
	statement text NOT NULL,
	signature text NOT NULL,
	CONSTRAINT install_report_pkey PRIMARY KEY (id),
	CONSTRAINT install_report_install_id_fkey FOREIGN KEY (install_id) REFERENCES install(id) ON DELETE CASCADE
);
CREATE INDEX install_report_by_install ON install_report (install_id);

CREATE TABLE install_request (
	install_id bigint NOT NULL,
	n bigint NOT NULL,
	at timestamp with time zone NOT NULL,
	what text NOT NULL,
	got text NOT NULL,
	mac text NOT NULL,
	address text NOT NULL,
	CONSTRAINT install_request_pkey PRIMARY KEY (install_id, n),
	CONSTRAINT install_request_install_id_fkey FOREIGN KEY (install_id) REFERENCES install(id) ON DELETE CASCADE
);

CREATE TABLE iso (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	version bigint NOT NULL DEFAULT 1,
	name text NOT NULL,
	folder text NOT NULL,
	url bytea,
	wanted text,
	status text NOT NULL DEFAULT 'queued',
	error text,
	import bigint NOT NULL DEFAULT 1,
	draft_id bigint,
	validator text,
	expected bigint,
	created_at timestamp with time zone NOT NULL DEFAULT now(),
	search text NOT NULL GENERATED ALWAYS AS (((E'\n' || lower(name)) || E'\n') || lower(folder)) STORED,
	CONSTRAINT iso_pkey PRIMARY KEY (id),
	CONSTRAINT iso_draft_id_fkey FOREIGN KEY (draft_id) REFERENCES stored_file(id) ON DELETE SET NULL,
	CONSTRAINT iso__folder UNIQUE (folder),
	CONSTRAINT iso__name UNIQUE (name)
);
CREATE INDEX iso_by_created_at ON iso (created_at, id);
CREATE INDEX iso_by_draft ON iso (draft_id);
CREATE INDEX iso_by_name ON iso (name, id);
CREATE INDEX iso_search ON iso USING gin (search gin_trgm_ops);

CREATE TABLE iso_edition (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	version bigint NOT NULL DEFAULT 1,
	iso_id bigint NOT NULL,
	number bigint NOT NULL,
	name text NOT NULL,
	is_enabled boolean NOT NULL DEFAULT false,
	license_key bytea,
	key_end text,
	CONSTRAINT iso_edition_pkey PRIMARY KEY (id),
	CONSTRAINT iso_edition_iso_id_fkey FOREIGN KEY (iso_id) REFERENCES iso(id) ON DELETE CASCADE,
	CONSTRAINT iso_edition_iso_id_name_key UNIQUE (iso_id, name)
);

CREATE TABLE preseed (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	version bigint NOT NULL DEFAULT 1,
	name text NOT NULL,
	description text,
	is_installable boolean NOT NULL,
	body text NOT NULL,
	problem text,
	search text NOT NULL GENERATED ALWAYS AS (((E'\n' || lower(name)) || E'\n') || lower(COALESCE(description, ''))) STORED,
	CONSTRAINT preseed_pkey PRIMARY KEY (id),
	CONSTRAINT preseed__name UNIQUE (name)
);
CREATE INDEX preseed_by_name ON preseed (name, id);
CREATE INDEX preseed_search ON preseed USING gin (search gin_trgm_ops);

CREATE TABLE profile (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	version bigint NOT NULL DEFAULT 1,
	name text NOT NULL,
	billing_id text,
	access_client boolean NOT NULL,
	boot_script_id bigint NOT NULL,
	preseed_id bigint,
	email_template_type text GENERATED ALWAYS AS ('email/template') STORED,
	email_template_id bigint,
	shell_after bigint[],
	shell_during bigint[],
	time_until_marked_failed integer,
	search text NOT NULL GENERATED ALWAYS AS (((E'\n' || lower(name)) || E'\n') || lower(COALESCE(billing_id, ''))) STORED,
	driver_ids bigint[],
	iso_id bigint,
	iso_edition text,
	experimental boolean NOT NULL DEFAULT false,
	email_failed_type text GENERATED ALWAYS AS ('email/template') STORED,
	email_failed_id bigint,
	CONSTRAINT profile_pkey PRIMARY KEY (id),
	CONSTRAINT profile__boot_script FOREIGN KEY (boot_script_id) REFERENCES boot_script(id),
	CONSTRAINT profile__email__failed FOREIGN KEY (email_failed_type, email_failed_id) REFERENCES ref(type, id),
	CONSTRAINT profile__email__template FOREIGN KEY (email_template_type, email_template_id) REFERENCES ref(type, id),
	CONSTRAINT profile__iso__id FOREIGN KEY (iso_id) REFERENCES iso(id),
	CONSTRAINT profile__preseed FOREIGN KEY (preseed_id) REFERENCES preseed(id),
	CONSTRAINT profile__name UNIQUE (name)
);
CREATE INDEX profile_by_billing_id ON profile (billing_id, id);
CREATE INDEX profile_by_boot_script ON profile (boot_script_id, id);
CREATE INDEX profile_by_email_failed ON profile (email_failed_id);
CREATE INDEX profile_by_email_template ON profile (email_template_id);
CREATE INDEX profile_by_iso ON profile (iso_id);
CREATE INDEX profile_by_name ON profile (name, id);
CREATE INDEX profile_by_preseed ON profile (preseed_id, id);
CREATE INDEX profile_search ON profile USING gin (search gin_trgm_ops);
CREATE TRIGGER profile_drivers AFTER INSERT OR UPDATE OF driver_ids ON profile FOR EACH ROW EXECUTE FUNCTION profile_drivers(); -- schema/functions/profile_drivers.sql
CREATE TRIGGER profile_shell_scripts AFTER INSERT OR UPDATE OF shell_after, shell_during ON profile FOR EACH ROW EXECUTE FUNCTION profile_shell_scripts(); -- schema/functions/profile_shell_scripts.sql

CREATE TABLE profile_driver (
	profile_id bigint NOT NULL,
	driver_id bigint NOT NULL,
	CONSTRAINT profile_driver_pkey PRIMARY KEY (profile_id, driver_id),
	CONSTRAINT profile__drivers FOREIGN KEY (driver_id) REFERENCES driver(id),
	CONSTRAINT profile_driver_profile_id_fkey FOREIGN KEY (profile_id) REFERENCES profile(id) ON DELETE CASCADE
);
CREATE INDEX profile_driver_by_driver ON profile_driver (driver_id);

CREATE TABLE profile_seed (
	profile_id bigint NOT NULL,
	version bigint NOT NULL,
	CONSTRAINT profile_seed_pkey PRIMARY KEY (profile_id),
	CONSTRAINT profile_seed_profile_id_fkey FOREIGN KEY (profile_id) REFERENCES profile(id) ON DELETE CASCADE
);

CREATE TABLE profile_shell_after (
	profile_id bigint NOT NULL,
	shell_script_id bigint NOT NULL,
	CONSTRAINT profile_shell_after_pkey PRIMARY KEY (profile_id, shell_script_id),
	CONSTRAINT profile__shell__after FOREIGN KEY (shell_script_id) REFERENCES shell_script(id),
	CONSTRAINT profile_shell_after_profile_id_fkey FOREIGN KEY (profile_id) REFERENCES profile(id) ON DELETE CASCADE
);
CREATE INDEX profile_shell_after_by_script ON profile_shell_after (shell_script_id);

CREATE TABLE profile_shell_during (
	profile_id bigint NOT NULL,
	shell_script_id bigint NOT NULL,
	CONSTRAINT profile_shell_during_pkey PRIMARY KEY (profile_id, shell_script_id),
	CONSTRAINT profile__shell__during FOREIGN KEY (shell_script_id) REFERENCES shell_script(id),
	CONSTRAINT profile_shell_during_profile_id_fkey FOREIGN KEY (profile_id) REFERENCES profile(id) ON DELETE CASCADE
);
CREATE INDEX profile_shell_during_by_script ON profile_shell_during (shell_script_id);

CREATE TABLE shell_script (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	version bigint NOT NULL DEFAULT 1,
	name text NOT NULL,
	description text,
	body text NOT NULL,
	problem text,
	search text NOT NULL GENERATED ALWAYS AS (((E'\n' || lower(name)) || E'\n') || lower(COALESCE(description, ''))) STORED,
	CONSTRAINT shell_script_pkey PRIMARY KEY (id),
	CONSTRAINT shell_script__name UNIQUE (name)
);
CREATE INDEX shell_script_by_name ON shell_script (name, id);
CREATE INDEX shell_script_search ON shell_script USING gin (search gin_trgm_ops);

CREATE TABLE site_agent (
	kind text NOT NULL,
	id bigint NOT NULL,
	asked_at timestamp with time zone NOT NULL DEFAULT '-infinity'::timestamp with time zone,
	seen_at timestamp with time zone,
	error text,
	version text,
	free_bytes bigint,
	total_bytes bigint,
	started_at timestamp with time zone,
	history text NOT NULL DEFAULT '',
	number bigint NOT NULL DEFAULT 0,
	reports text[] NOT NULL DEFAULT '{}'[],
	machines_url text NOT NULL DEFAULT '',
	heard_at timestamp with time zone,
	pushed bigint NOT NULL DEFAULT 0,
	pushed_at timestamp with time zone NOT NULL DEFAULT '-infinity'::timestamp with time zone,
	machines_ipv6_url text NOT NULL DEFAULT '',
	dhcp jsonb,
	problems text[] NOT NULL DEFAULT '{}'[],
	entry_at timestamp with time zone,
	skip_until timestamp with time zone,
	CONSTRAINT site_agent_pkey PRIMARY KEY (kind, id)
);
CREATE INDEX site_agent_due ON site_agent (asked_at);

CREATE TABLE stored_file (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	path text,
	size bigint NOT NULL DEFAULT 0,
	sha256 text,
	hash bytea,
	expires_at timestamp with time zone,
	CONSTRAINT stored_file_pkey PRIMARY KEY (id),
	CONSTRAINT stored_file_check CHECK (path IS NULL OR sha256 IS NOT NULL),
	CONSTRAINT stored_file__path UNIQUE (path)
);
CREATE INDEX stored_file_by_expiry ON stored_file (expires_at);

CREATE TABLE stored_piece (
	file_id bigint NOT NULL,
	start bigint NOT NULL,
	size bigint NOT NULL,
	blob text NOT NULL,
	skip bigint NOT NULL,
	CONSTRAINT stored_piece_pkey PRIMARY KEY (file_id, start),
	CONSTRAINT stored_piece_file_id_fkey FOREIGN KEY (file_id) REFERENCES stored_file(id) ON DELETE CASCADE
);
CREATE INDEX stored_piece_by_blob ON stored_piece (blob);

CREATE TABLE stored_prefix (
	prefix text NOT NULL
);

-- VIEW dhcp_server_view: schema/views/dhcp_server_view.sql
--	id bigint
--	version bigint
--	name text
--	http_host text
--	http_port integer
--	http_use_https boolean
--	http_fingerprint text
--	search text
--	health text

-- VIEW discovery_view: schema/views/discovery_view.sql
--	id bigint
--	version bigint
--	name text
--	address text
--	facts jsonb
--	dhcp_server_id bigint
--	dhcp_server_name text
--	first_seen_at timestamp with time zone
--	seen_at timestamp with time zone

-- VIEW driver_view: schema/views/driver_view.sql
--	id bigint
--	version bigint
--	name text
--	content text
--	file_id bigint
--	size bigint
--	sha256 text
--	search text

-- VIEW file_server_view: schema/views/file_server_view.sql
--	id bigint
--	version bigint
--	name text
--	install_max_concurrent integer
--	group_id bigint
--	group_name text
--	parent_id bigint
--	parent_name text
--	http_host text
--	http_port integer
--	http_use_https boolean
--	http_fingerprint text
--	ssh_port integer
--	ssh_public_key text
--	search text
--	health text
--	ssh_use_sftp boolean

-- VIEW install_view: schema/views/install_view.sql
--	id bigint
--	version bigint
--	name text
--	status text
--	step text
--	progress integer
--	error text
--	attempt integer
--	created_at timestamp with time zone
--	started_at timestamp with time zone
--	finished_at timestamp with time zone
--	seen_at timestamp with time zone
--	reason text
--	profile_id bigint
--	profile_name text
--	host_macs text[]
--	host_hostname text
--	host_disk text
--	host_firmware text
--	host_nameservers text
--	host_ipv4_address text
--	host_ipv4_gateway text
--	host_ipv6_address text
--	host_ipv6_gateway text
--	host_vlan integer
--	host_entity_id bigint
--	host_entity_name text
--	client_id bigint
--	client_name text
--	dhcp_server_id bigint
--	dhcp_server_name text
--	file_server_id bigint
--	file_server_name text
--	ssh_keys text
--	variables jsonb
--	search text
--	requests jsonb
--	forced text[]
--	reports jsonb

-- VIEW iso_edition_seen: schema/views/iso_edition_seen.sql
--	id bigint
--	version bigint
--	iso_id bigint
--	number bigint
--	name text
--	is_enabled boolean
--	key text
--	for_client boolean

-- VIEW iso_edition_view: schema/views/iso_edition_view.sql
--	id bigint
--	version bigint
--	iso_id bigint
--	number bigint
--	name text
--	is_enabled boolean
--	key_end text
--	key text

-- VIEW iso_view: schema/views/iso_view.sql
--	id bigint
--	version bigint
--	name text
--	folder text
--	status text
--	error text
--	created_at timestamp with time zone
--	search text
--	wanted text
--	progress integer
--	size bigint
--	sha256 text

-- VIEW profile_view: schema/views/profile_view.sql
--	id bigint
--	version bigint
--	name text
--	billing_id text
--	access_client boolean
--	boot_script_id bigint
--	boot_script_name text
--	preseed_id bigint
--	preseed_name text
--	email_template_id bigint
--	email_template_name text
--	shell_after bigint[]
--	shell_during bigint[]
--	iso_id bigint
--	iso_name text
--	iso_edition text
--	driver_ids bigint[]
--	drivers jsonb
--	time_until_marked_failed integer
--	search text
--	experimental boolean
--	email_failed_id bigint
--	email_failed_name text

-- VIEW site_agent_health: schema/views/site_agent_health.sql
--	kind text
--	id bigint
--	status text
--	failure text
