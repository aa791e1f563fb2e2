-- +goose Up
-- What the log's items say to a person, each member behind a line feed: the sentence, who did it, from where, and the names
-- of what it is about. The index is all that is added: what is signed stays as it is.
-- +goose StatementBegin
CREATE FUNCTION log_search(description text, user_name text, ip text, targets json) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN lower(E'\n' || description || coalesce(E'\n' || user_name, '') || coalesce(E'\n' || ip, '')
	|| coalesce((SELECT string_agg(E'\n' || (target ->> 'name'), '') FROM json_array_elements(targets) target), ''));
-- +goose StatementEnd

CREATE INDEX log_search ON log USING gin (log_search(description, user_name, ip, targets) gin_trgm_ops);

-- Whether a search goes by its index or by the order of the list depends on how rare the planner knows a text to be.
ALTER INDEX log_search ALTER COLUMN 1 SET STATISTICS 1000;

CREATE OR REPLACE VIEW log_view AS
SELECT id, at AS created_at, coalesce(ip, '') AS ip, type, description AS "desc",
	substring(user_url FROM '[0-9]+$')::bigint AS user_id, user_name, user_url, targets, log_search(description, user_name, ip, targets) AS search
FROM log;

CREATE OR REPLACE VIEW log_by_target AS
SELECT t.log_id AS id, t.at AS created_at, t.type AS target_type, t.target_id, l.type, t.user_url, log_search(l.description, l.user_name, l.ip, l.targets) AS search
FROM log_target t LEFT JOIN log l ON l.id = t.log_id;
