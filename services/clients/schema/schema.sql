-- The schema of the clients service. Written by make schema: do not edit it.
-- The tables that every service has are in pkg/runtime/host/schema.sql.

CREATE TABLE adoption (
	client_id bigint NOT NULL,
	integration_id bigint NOT NULL,
	billing_id bigint NOT NULL,
	credentials bigint NOT NULL,
	hash bytea,
	expires_at timestamp with time zone NOT NULL,
	asked_at timestamp with time zone NOT NULL DEFAULT now(),
	CONSTRAINT adoption_pkey PRIMARY KEY (client_id, integration_id),
	CONSTRAINT adoption_hash_check CHECK (length(hash) = 32),
	CONSTRAINT adoption_client_id_fkey FOREIGN KEY (client_id) REFERENCES client(id) ON DELETE CASCADE
);
CREATE INDEX adoption_ends ON adoption (expires_at);

CREATE TABLE client (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	version bigint NOT NULL DEFAULT 1,
	email text NOT NULL,
	first text NOT NULL,
	last text NOT NULL,
	name text NOT NULL GENERATED ALWAYS AS ((first || ' ') || last) STORED,
	password_hash text,
	billing_id bigint,
	ignore_auto_suspend boolean NOT NULL DEFAULT false,
	integration_id bigint,
	require_verify boolean NOT NULL DEFAULT false,
	disabled boolean NOT NULL DEFAULT false,
	created_at timestamp with time zone NOT NULL DEFAULT now(),
	search text NOT NULL GENERATED ALWAYS AS (((((E'\n' || lower((first || ' ') || last)) || E'\n') || lower(last)) || E'\n') || lower(email)) STORED,
	claimed_at timestamp with time zone,
	root_id bigint,
	credentials bigint NOT NULL DEFAULT 0,
	credentials_key bigint NOT NULL DEFAULT 0,
	signed_in_at timestamp with time zone,
	unproven boolean NOT NULL DEFAULT false,
	language text,
	CONSTRAINT client_pkey PRIMARY KEY (id)
);
CREATE INDEX client_by_created_at ON client (created_at, id);
CREATE INDEX client_by_email ON client (email, id);
CREATE INDEX client_by_integration ON client (integration_id, id) WHERE integration_id IS NOT NULL;
CREATE INDEX client_by_name ON client (name, id);
CREATE INDEX client_disabled ON client (id) WHERE disabled;
CREATE INDEX client_search ON client USING gin (search gin_trgm_ops);
CREATE UNIQUE INDEX client__billing__id ON client (billing_id, integration_id) NULLS NOT DISTINCT WHERE billing_id IS NOT NULL;
CREATE UNIQUE INDEX client__email ON client (lower(email));
CREATE TRIGGER client_detached AFTER UPDATE OF integration_id ON client FOR EACH ROW WHEN (old.integration_id IS NOT NULL AND new.integration_id IS NULL) EXECUTE FUNCTION client_detached(); -- schema/functions/client_detached.sql
CREATE TRIGGER client_disabled AFTER UPDATE OF disabled ON client FOR EACH ROW WHEN (new.disabled <> old.disabled AND pg_trigger_depth() = 0) EXECUTE FUNCTION client_disabled(); -- schema/functions/client_disabled.sql
CREATE TRIGGER client_made_disabled AFTER INSERT ON client FOR EACH ROW WHEN (new.disabled) EXECUTE FUNCTION client_disabled(); -- schema/functions/client_disabled.sql
CREATE TRIGGER client_renamed AFTER UPDATE ON client FOR EACH ROW WHEN (new.name <> old.name OR new.search <> old.search) EXECUTE FUNCTION client_renamed(); -- schema/functions/client_renamed.sql

CREATE TABLE client_reach (
	ancestor bigint NOT NULL,
	descendant bigint NOT NULL,
	ways numeric NOT NULL,
	name text NOT NULL,
	search text NOT NULL,
	CONSTRAINT client_reach_pkey PRIMARY KEY (ancestor, descendant)
);
CREATE INDEX client_reach_by_descendant ON client_reach (descendant, ancestor);

CREATE TABLE client_recount (
	id bigint NOT NULL,
	CONSTRAINT client_recount_pkey PRIMARY KEY (id)
);

CREATE TABLE client_server_count (
	id bigint NOT NULL,
	servers bigint NOT NULL,
	CONSTRAINT client_server_count_pkey PRIMARY KEY (id),
	CONSTRAINT client_server_count_id_fkey FOREIGN KEY (id) REFERENCES client(id) ON DELETE CASCADE
);

CREATE TABLE email_use (
	root_id bigint NOT NULL,
	at timestamp with time zone NOT NULL
);
CREATE INDEX email_use_by_root ON email_use (root_id, at);

CREATE TABLE sub_link (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	version bigint NOT NULL DEFAULT 1,
	client_id bigint NOT NULL,
	child_id bigint NOT NULL,
	kind text NOT NULL,
	email text,
	first text,
	last text,
	created_at timestamp with time zone NOT NULL DEFAULT now(),
	CONSTRAINT sub_link_pkey PRIMARY KEY (id),
	CONSTRAINT sub_link_check CHECK (client_id <> child_id),
	CONSTRAINT sub_link_check1 CHECK (num_nonnulls(email, first, last) = CASE kind WHEN 'named' THEN 3 ELSE 0 END),
	CONSTRAINT sub_link_kind_check CHECK (kind = ANY (ARRAY['created', 'given', 'named'])),
	CONSTRAINT sub_link_child_id_fkey FOREIGN KEY (child_id) REFERENCES client(id) ON DELETE CASCADE,
	CONSTRAINT sub_link_client_id_fkey FOREIGN KEY (client_id) REFERENCES client(id) ON DELETE CASCADE,
	CONSTRAINT sub_link_client_id_child_id_key UNIQUE (client_id, child_id)
);
CREATE INDEX sub_link_by_child ON sub_link (child_id, id);
CREATE INDEX sub_link_by_client ON sub_link (client_id, id);
CREATE TRIGGER sub_link_deleted AFTER DELETE ON sub_link FOR EACH ROW WHEN (old.kind <> 'named') EXECUTE FUNCTION sub_link_deleted(); -- schema/functions/sub_link_deleted.sql
CREATE TRIGGER sub_link_made AFTER INSERT ON sub_link FOR EACH ROW WHEN (new.kind <> 'named') EXECUTE FUNCTION sub_link_made(); -- schema/functions/sub_link_made.sql

CREATE TABLE super_link (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	version bigint NOT NULL DEFAULT 1,
	client_id bigint NOT NULL,
	grantee_id bigint NOT NULL,
	given boolean NOT NULL,
	name text,
	created_at timestamp with time zone NOT NULL DEFAULT now(),
	CONSTRAINT super_link_pkey PRIMARY KEY (id),
	CONSTRAINT super_link_check CHECK (client_id <> grantee_id),
	CONSTRAINT super_link_client_id_fkey FOREIGN KEY (client_id) REFERENCES client(id) ON DELETE CASCADE,
	CONSTRAINT super_link_grantee_id_fkey FOREIGN KEY (grantee_id) REFERENCES client(id) ON DELETE CASCADE,
	CONSTRAINT super_link_client_id_grantee_id_key UNIQUE (client_id, grantee_id)
);
CREATE INDEX super_link_by_client ON super_link (client_id, id);
CREATE INDEX super_link_by_grantee ON super_link (grantee_id, id);

CREATE TABLE suspension (
	client_id bigint NOT NULL,
	kind text NOT NULL,
	reseller_id bigint,
	created_at timestamp with time zone NOT NULL DEFAULT now(),
	CONSTRAINT suspension_check CHECK ((reseller_id IS NOT NULL) = (kind = 'reseller')),
	CONSTRAINT suspension_kind_check CHECK (kind = ANY (ARRAY['admin', 'integration', 'reseller'])),
	CONSTRAINT suspension_client_id_fkey FOREIGN KEY (client_id) REFERENCES client(id) ON DELETE CASCADE,
	CONSTRAINT suspension_reseller_id_client_id_fkey FOREIGN KEY (reseller_id, client_id) REFERENCES client_reach(ancestor, descendant) ON DELETE CASCADE,
	CONSTRAINT suspension_client_id_kind_reseller_id_key UNIQUE NULLS NOT DISTINCT (client_id, kind, reseller_id)
);
CREATE INDEX suspension_by_reseller ON suspension (reseller_id, client_id) WHERE reseller_id IS NOT NULL;
CREATE TRIGGER suspension_changed AFTER INSERT OR DELETE ON suspension FOR EACH ROW EXECUTE FUNCTION suspension_changed(); -- schema/functions/suspension_changed.sql

-- VIEW client_listed: schema/views/client_listed.sql
--	id bigint
--	version bigint
--	email text
--	first text
--	last text
--	name text
--	created_at timestamp with time zone
--	search text
--	disabled boolean
--	billing_id bigint
--	of_billing_id bigint
--	ignore_auto_suspend boolean
--	of_billing_ignore_auto_suspend boolean
--	integration_id bigint
--	integration_name text
--	password_hash text
--	require_verify boolean
--	verify jsonb
--	claimed_at timestamp with time zone
--	servers_count bigint
--	viewer bigint
--	listed boolean
--	suspended_by text[]
--	suspended boolean
--	language text

-- VIEW client_reached: schema/views/client_reached.sql
--	viewer bigint
--	id bigint
--	listed boolean
--	name text
--	search text

-- VIEW client_seen: schema/views/client_seen.sql
--	viewer bigint
--	listed boolean
--	id bigint
--	version bigint
--	email text
--	first text
--	last text
--	name text
--	created_at timestamp with time zone
--	search text
--	disabled boolean
--	billing_id bigint
--	of_billing_id bigint
--	of_billing_ignore_auto_suspend boolean
--	integration_id bigint
--	integration_name text
--	require_verify boolean
--	verify jsonb
--	claimed_at timestamp with time zone
--	servers_count bigint
--	suspended_by text[]
--	suspended boolean
--	language text

-- VIEW client_view: schema/views/client_view.sql
--	id bigint
--	version bigint
--	email text
--	first text
--	last text
--	name text
--	created_at timestamp with time zone
--	search text
--	disabled boolean
--	billing_id bigint
--	of_billing_id bigint
--	ignore_auto_suspend boolean
--	of_billing_ignore_auto_suspend boolean
--	integration_id bigint
--	integration_name text
--	password_hash text
--	require_verify boolean
--	verify jsonb
--	claimed_at timestamp with time zone
--	servers_count bigint
--	suspended_by text[]
--	suspended boolean
--	language text

-- VIEW sub_link_view: schema/views/sub_link_view.sql
--	id bigint
--	version bigint
--	client_id bigint
--	kind text
--	name text
--	child_id bigint
--	child_name text
--	child_email text
--	child_first text
--	child_last text
--	child_created_at timestamp with time zone
--	child_integration_id bigint
--	child_integration_name text
--	parent_id bigint
--	parent_name text
--	child_servers_count bigint

-- VIEW super_link_view: schema/views/super_link_view.sql
--	id bigint
--	version bigint
--	client_id bigint
--	grantee_id bigint
--	grantee_name text
--	name text
--	granter_id bigint
--	granter_name text
