-- +goose Up

CREATE TABLE forward_type (
	id      bigint PRIMARY KEY,
	version bigint NOT NULL DEFAULT 1,
	name    text NOT NULL,
	slug    text NOT NULL UNIQUE,
	search  text NOT NULL GENERATED ALWAYS AS (E'\n' || lower(name) || E'\n' || lower(slug)) STORED
);
INSERT INTO forward_type (id, name, slug) VALUES (1, 'Port to port', 'port_to_port'), (2, 'IP to IP', 'ip_to_ip');

CREATE TABLE forward_gateway (
	id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version    bigint NOT NULL DEFAULT 1,
	name       text NOT NULL CONSTRAINT forward_gateway__name UNIQUE,
	hostname   text NOT NULL,
	api_key    bytea, -- sealed
	port_limit text NOT NULL,
	group_ids  bigint[],
	search     text NOT NULL GENERATED ALWAYS AS (E'\n' || lower(name) || E'\n' || lower(hostname)) STORED
);
CREATE INDEX forward_gateway_search ON forward_gateway USING gin (search gin_trgm_ops);
CREATE INDEX forward_gateway_by_name ON forward_gateway (name, id);
CREATE INDEX forward_gateway_by_hostname ON forward_gateway (hostname, id);

-- The gateways' groups again, one a row, so that all of them exist.
CREATE TABLE forward_gateway_group (
	gateway_id bigint REFERENCES forward_gateway ON DELETE CASCADE,
	group_id   bigint CONSTRAINT forward_gateway__groups REFERENCES ip_group,
	PRIMARY KEY (gateway_id, group_id)
);
CREATE INDEX forward_gateway_group_by_group ON forward_gateway_group (group_id);

-- +goose StatementBegin
CREATE FUNCTION forward_gateway_groups() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	DELETE FROM forward_gateway_group WHERE gateway_id = NEW.id AND group_id <> ALL (coalesce(NEW.group_ids, '{}'));
	INSERT INTO forward_gateway_group SELECT NEW.id, unnest(NEW.group_ids) ON CONFLICT DO NOTHING;
	RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER forward_gateway_groups AFTER INSERT OR UPDATE OF group_ids ON forward_gateway FOR EACH ROW EXECUTE FUNCTION forward_gateway_groups();

CREATE VIEW forward_gateway_view AS
SELECT f.id, f.version, f.name, f.hostname, f.port_limit, f.group_ids, f.search, (
	SELECT coalesce(jsonb_agg(jsonb_build_object('id', g.id, 'name', g.name) ORDER BY g.id), '[]') FROM ip_group g WHERE g.id = ANY (f.group_ids)) AS groups
FROM forward_gateway f;
