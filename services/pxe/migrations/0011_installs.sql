-- +goose Up
ALTER TABLE site_agent ADD machines_url text NOT NULL DEFAULT '', -- where machines reach it
	ADD heard_at timestamptz, -- when there was no more to hear
	ADD pushed bigint NOT NULL DEFAULT 0, -- the last revision of what machines are to do that it was told of
	ADD pushed_at timestamptz NOT NULL DEFAULT '-infinity'; -- when it was told last

-- Revisions of what machines are to do rise, whichever install they are of.
CREATE SEQUENCE install_revision;

-- array_to_string, of texts, which is immutable.
CREATE FUNCTION array_to_text(text[]) RETURNS text IMMUTABLE LANGUAGE sql RETURN array_to_string($1, E'\n');

-- The installation of a machine. What it needs of other items, it has as they were then; their names are those of now, where there are any.
CREATE TABLE install (
	id                 bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version            bigint NOT NULL DEFAULT 1,
	status             text NOT NULL DEFAULT 'waiting' CHECK (status IN ('waiting', 'booting', 'installing', 'installed', 'failed', 'cancelled')),
	step               text,
	progress           integer NOT NULL DEFAULT 0,
	error              text,
	attempt            integer NOT NULL DEFAULT 1,
	revision           bigint NOT NULL DEFAULT nextval('install_revision'), -- of what its machine is to do
	first_revision     bigint NOT NULL DEFAULT 0, -- of this attempt: who reports by an older one does so of an earlier attempt
	granted            boolean NOT NULL DEFAULT false, -- its file server has room for it
	asked_at           timestamptz, -- since when its machine asks for a script
	stage_at           timestamptz NOT NULL DEFAULT now(), -- since when it has this status, and room where it waits
	seen_at            timestamptz, -- when its machine was heard of last
	created_at         timestamptz NOT NULL DEFAULT now(),
	started_at         timestamptz, -- when its machine was given its boot script for the first time
	finished_at        timestamptz,
	requests           bigint NOT NULL DEFAULT 0, -- how many there were
	profile_id         bigint NOT NULL,
	profile_name       text NOT NULL,
	host_macs          text[] NOT NULL,
	host_hostname      text NOT NULL,
	host_disk          text,
	host_firmware      text NOT NULL,
	host_nameservers   text NOT NULL,
	host_ipv4_address  text, -- with the length of the subnet's prefix
	host_ipv4_gateway  text,
	host_ipv6_address  text,
	host_ipv6_gateway  text,
	host_vlan          integer,
	host_entity_type   text GENERATED ALWAYS AS ('entity') STORED,
	host_entity_id     bigint NOT NULL,
	ssh_keys           text NOT NULL,
	variables          jsonb NOT NULL,
	client_type        text GENERATED ALWAYS AS ('client') STORED,
	client_id          bigint,
	client_email       text, -- until it ends
	dhcp_server_id     bigint NOT NULL,
	dhcp_server_name   text NOT NULL,
	file_server_id     bigint,
	file_server_name   text,
	password           bytea, -- sealed, until it ends
	token              bytea, -- likewise
	search             text NOT NULL GENERATED ALWAYS AS (E'\n' || lower(host_hostname) || E'\n' || array_to_text(host_macs)) STORED,
	CONSTRAINT install__host__entity FOREIGN KEY (host_entity_type, host_entity_id) REFERENCES ref (type, id),
	CONSTRAINT install__client FOREIGN KEY (client_type, client_id) REFERENCES ref (type, id)
);
CREATE INDEX install_search ON install USING gin (search gin_trgm_ops);
CREATE INDEX install_by_name ON install (host_hostname, id);
CREATE INDEX install_by_created_at ON install (created_at, id);
CREATE INDEX install_by_status ON install (status, id);
CREATE INDEX install_by_profile ON install (profile_id, id);
CREATE INDEX install_by_client ON install (client_id, id);
CREATE INDEX install_by_entity ON install (host_entity_id);
CREATE UNIQUE INDEX install__host__entity ON install (host_entity_id) WHERE status IN ('waiting', 'booting', 'installing');
CREATE INDEX install_by_dhcp_server ON install (dhcp_server_id, revision);
CREATE INDEX install_under_way ON install (file_server_id) WHERE status IN ('waiting', 'booting', 'installing');
CREATE INDEX install_under_way_by_dhcp_server ON install (dhcp_server_id) WHERE status IN ('waiting', 'booting', 'installing');

-- The machines' MAC addresses. The install that took one last says what the machine boots.
CREATE TABLE install_mac (
	install_id bigint NOT NULL REFERENCES install ON DELETE CASCADE,
	mac        text NOT NULL,
	under_way  boolean NOT NULL DEFAULT true,
	taken      bigint NOT NULL DEFAULT nextval('install_revision'),
	PRIMARY KEY (install_id, mac)
);
CREATE UNIQUE INDEX install__host__macs ON install_mac (mac) WHERE under_way;
CREATE INDEX install_mac_taken ON install_mac (mac, taken);

-- +goose StatementBegin
CREATE FUNCTION install_macs() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	goes_on boolean := NEW.status IN ('waiting', 'booting', 'installing');
BEGIN
	IF TG_OP = 'INSERT' THEN
		INSERT INTO install_mac (install_id, mac) SELECT NEW.id, mac FROM unnest(NEW.host_macs) mac ORDER BY mac;
	ELSE
		UPDATE install_mac SET under_way = goes_on, taken = CASE WHEN goes_on THEN nextval('install_revision') ELSE taken END
		WHERE install_id = NEW.id AND under_way <> goes_on;
	END IF;
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER install_macs AFTER INSERT OR UPDATE OF status ON install FOR EACH ROW EXECUTE FUNCTION install_macs();

-- What machines asked for, the last hundred of each install.
CREATE TABLE install_request (
	install_id bigint NOT NULL REFERENCES install ON DELETE CASCADE,
	n          bigint NOT NULL,
	at         timestamptz NOT NULL,
	what       text NOT NULL,
	got        text NOT NULL,
	mac        text NOT NULL,
	address    text NOT NULL,
	PRIMARY KEY (install_id, n)
);

CREATE VIEW install_view AS
SELECT i.id, i.version, i.host_hostname AS name, i.status, i.step, i.progress, i.error, i.attempt, i.created_at, i.started_at, i.finished_at, i.seen_at,
	CASE WHEN i.status <> 'waiting' THEN NULL
		WHEN NOT i.granted THEN format('File server %s (%s) is full: %s install from it at a time.', f.id, f.name, f.install_max_concurrent)
		WHEN d.error IS NOT NULL THEN format('The agent of DHCP server %s (%s) cannot be asked.', i.dhcp_server_id, i.dhcp_server_name)
		WHEN d.seen_at IS NULL THEN format('The agent of DHCP server %s (%s) was not asked yet.', i.dhcp_server_id, i.dhcp_server_name)
		WHEN d.machines_url = '' THEN format('The agent of DHCP server %s (%s) serves no machines.', i.dhcp_server_id, i.dhcp_server_name)
		WHEN f.id IS NOT NULL AND a.seen_at IS NULL THEN format('The agent of file server %s (%s) was not asked yet.', f.id, f.name)
	END AS reason,
	i.profile_id, i.profile_name, i.host_macs, i.host_hostname, i.host_disk, i.host_firmware, i.host_nameservers,
	i.host_ipv4_address, i.host_ipv4_gateway, i.host_ipv6_address, i.host_ipv6_gateway, i.host_vlan,
	i.host_entity_id, e.name AS host_entity_name, i.client_id, c.name AS client_name, i.dhcp_server_id, i.dhcp_server_name, i.file_server_id, i.file_server_name,
	i.ssh_keys, i.variables, i.search,
	(SELECT coalesce(jsonb_agg(jsonb_build_object('at', jsonb_build_object('unix', extract(epoch FROM q.at)::bigint), 'what', q.what, 'got', q.got, 'mac', q.mac, 'address', q.address)
		ORDER BY q.n DESC), '[]') FROM install_request q WHERE q.install_id = i.id) AS requests
FROM install i
JOIN ref e ON e.type = i.host_entity_type AND e.id = i.host_entity_id
LEFT JOIN ref c ON c.type = i.client_type AND c.id = i.client_id
LEFT JOIN file_server f ON f.id = i.file_server_id
LEFT JOIN site_agent d ON d.kind = 'pxe/dhcp' AND d.id = i.dhcp_server_id
LEFT JOIN site_agent a ON a.kind = 'pxe/file' AND a.id = i.file_server_id;

-- Machines that asked, and that nobody named.
CREATE TABLE discovery (
	id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version          bigint NOT NULL DEFAULT 1,
	name             text NOT NULL UNIQUE, -- the MAC address that it asked with
	address          text NOT NULL,
	facts            jsonb NOT NULL,
	dhcp_server_id   bigint REFERENCES dhcp_server ON DELETE SET NULL,
	first_seen_at    timestamptz NOT NULL,
	seen_at          timestamptz NOT NULL
);
CREATE INDEX discovery_by_seen_at ON discovery (seen_at, id);
CREATE INDEX discovery_by_dhcp_server ON discovery (dhcp_server_id);

CREATE VIEW discovery_view AS
SELECT d.id, d.version, d.name, d.address, d.facts, d.dhcp_server_id, s.name AS dhcp_server_name, d.first_seen_at, d.seen_at
FROM discovery d LEFT JOIN dhcp_server s ON s.id = d.dhcp_server_id;
