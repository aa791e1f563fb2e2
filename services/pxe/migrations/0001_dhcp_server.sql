-- +goose Up
-- A constraint that a caller can run into is named <table>__<member of the body>.

CREATE TABLE dhcp_server (
	id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version        bigint NOT NULL DEFAULT 1,
	name           text NOT NULL CONSTRAINT dhcp_server__name UNIQUE,
	http_host      text NOT NULL,
	http_port      integer,
	http_use_https boolean NOT NULL,
	http_api_key   bytea, -- sealed
	search         text NOT NULL GENERATED ALWAYS AS (E'\n' || lower(name) || E'\n' || lower(http_host)) STORED
);

CREATE INDEX dhcp_server_search ON dhcp_server USING gin (search gin_trgm_ops);
CREATE INDEX dhcp_server_by_name ON dhcp_server (name, id);
CREATE INDEX dhcp_server_by_host ON dhcp_server (http_host, id);
