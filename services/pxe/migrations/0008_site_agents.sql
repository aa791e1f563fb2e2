-- +goose Up
ALTER TABLE dhcp_server ADD COLUMN http_fingerprint text;
ALTER TABLE file_server ADD COLUMN http_fingerprint text;

-- How the agent of a server is, and how far it was listened to.
CREATE TABLE site_agent (
	kind        text NOT NULL, -- the path of the server's collection
	id          bigint NOT NULL,
	asked_at    timestamptz NOT NULL DEFAULT '-infinity',
	seen_at     timestamptz,
	error       text,
	version     text,
	free_bytes  bigint,
	total_bytes bigint,
	started_at  timestamptz,
	history     text NOT NULL DEFAULT '',
	number      bigint NOT NULL DEFAULT 0,
	reports     text[] NOT NULL DEFAULT '{}',
	PRIMARY KEY (kind, id)
);
CREATE INDEX site_agent_due ON site_agent (asked_at);

CREATE VIEW site_agent_health AS
SELECT kind, id, CASE WHEN error IS NOT NULL THEN 'failing' WHEN seen_at IS NULL THEN 'unknown' WHEN free_bytes < total_bytes / 20 THEN 'degraded' ELSE 'ok' END AS status
FROM site_agent;

CREATE VIEW dhcp_server_view AS
SELECT d.id, d.version, d.name, d.http_host, d.http_port, d.http_use_https, d.http_fingerprint, d.search, coalesce(h.status, 'unknown') AS health
FROM dhcp_server d LEFT JOIN site_agent_health h ON h.kind = 'pxe/dhcp' AND h.id = d.id;

DROP VIEW file_server_view;
CREATE VIEW file_server_view AS
SELECT f.id, f.version, f.name, f.install_max_concurrent, f.group_id, r.name AS group_name, f.parent_id, p.name AS parent_name,
	f.http_host, f.http_port, f.http_use_https, f.http_fingerprint, f.ssh_port, f.ssh_public_key, f.search, coalesce(h.status, 'unknown') AS health
FROM file_server f
LEFT JOIN ref r ON r.type = f.group_type AND r.id = f.group_id
LEFT JOIN file_server p ON p.id = f.parent_id
LEFT JOIN site_agent_health h ON h.kind = 'pxe/file' AND h.id = f.id;

-- What has become of the last wish that a file server have the files of its parent, or of the store.
CREATE TABLE file_sync (
	server_id   bigint PRIMARY KEY REFERENCES file_server ON DELETE CASCADE,
	status      text NOT NULL, -- waiting, running, retrying, done, failed
	from_id     bigint,        -- the parent, since it runs
	again       boolean NOT NULL DEFAULT false, -- it was wished once more while it ran
	attempt     integer NOT NULL DEFAULT 0,
	files       bigint NOT NULL DEFAULT 0,
	files_total bigint NOT NULL DEFAULT 0,
	bytes       bigint NOT NULL DEFAULT 0,
	bytes_total bigint NOT NULL DEFAULT 0,
	error       text, -- of the last attempt that failed
	asked_at    timestamptz NOT NULL,
	started_at  timestamptz,
	finished_at timestamptz
);
CREATE INDEX file_sync_running ON file_sync (from_id) WHERE status = 'running';
