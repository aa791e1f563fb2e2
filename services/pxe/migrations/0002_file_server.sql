-- +goose Up
CREATE TABLE file_server (
	id                     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version                bigint NOT NULL DEFAULT 1,
	name                   text NOT NULL CONSTRAINT file_server__name UNIQUE,
	install_max_concurrent integer NOT NULL,
	-- The IP group is another service's: its row of ref is what is known of it here.
	group_type             text GENERATED ALWAYS AS ('group') STORED,
	group_id               bigint,
	parent_id              bigint CONSTRAINT file_server__parent_id REFERENCES file_server,
	http_host              text NOT NULL,
	http_port              integer,
	http_use_https         boolean NOT NULL,
	http_api_key           bytea, -- sealed
	ssh_port               integer NOT NULL,
	ssh_public_key         text NOT NULL,
	search                 text NOT NULL GENERATED ALWAYS AS (E'\n' || lower(name) || E'\n' || lower(http_host)) STORED,
	CONSTRAINT file_server__group_id FOREIGN KEY (group_type, group_id) REFERENCES ref (type, id)
);

CREATE INDEX file_server_search ON file_server USING gin (search gin_trgm_ops);
CREATE INDEX file_server_by_name ON file_server (name, id);
CREATE INDEX file_server_by_host ON file_server (http_host, id);
CREATE INDEX file_server_by_group ON file_server (group_id, id);
CREATE INDEX file_server_by_parent ON file_server (parent_id, id);

CREATE VIEW file_server_view AS
SELECT f.id, f.version, f.name, f.install_max_concurrent, f.group_id, r.name AS group_name, f.parent_id, p.name AS parent_name,
	f.http_host, f.http_port, f.http_use_https, f.ssh_port, f.ssh_public_key, f.search
FROM file_server f
LEFT JOIN ref r ON r.type = f.group_type AND r.id = f.group_id
LEFT JOIN file_server p ON p.id = f.parent_id;
