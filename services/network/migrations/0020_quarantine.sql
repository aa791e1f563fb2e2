-- +goose NO TRANSACTION
-- +goose Up
-- What is reserved or quarantined is counted by deltas. These are tables of their own, because an older release, which folds
-- the others, would drop what it does not know.
CREATE TABLE IF NOT EXISTS ip_held_count (
	group_id    bigint PRIMARY KEY,
	reserved    bigint NOT NULL,
	quarantined bigint NOT NULL -- until their rows of ip_assignment are deleted
);

CREATE TABLE IF NOT EXISTS ip_held_delta (
	id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	group_id    bigint NOT NULL,
	reserved    bigint NOT NULL,
	quarantined bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX IF NOT EXISTS ip_held_delta_by_group ON ip_held_delta (group_id);

-- Those of a group whose quarantine has ended are looked for at each allocation.
DROP INDEX IF EXISTS ip_assignment_by_available_at, ip_assignment_quarantined;
CREATE INDEX CONCURRENTLY ip_assignment_quarantined ON ip_assignment (group_id, available_at, entity_id) WHERE available_at IS NOT NULL;

-- Whether the values of a field end with the ownership of an IP entity.
ALTER TABLE field ADD COLUMN IF NOT EXISTS clear_on_release boolean NOT NULL DEFAULT true;

-- +goose StatementBegin
-- The lowest of the largest blocks of a chunk: no row where nothing in it is free. due adds entities whose quarantine has
-- ended, and whose rows of ip_assignment are not deleted yet.
CREATE OR REPLACE FUNCTION largest_free(of_group bigint, of_chunk cidr, due boolean, OUT first inet, OUT bits smallint) RETURNS SETOF record LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
	WITH ends AS (
		SELECT set_masklen(of_chunk::inet, masklen(of_chunk) + 10) AS lowest, set_masklen(broadcast(of_chunk::inet), masklen(of_chunk) + 10) AS highest),
	address AS (
		SELECT f.v4_first - lowest AS n FROM ends, ip_free f WHERE f.group_id = of_group AND f.v4_first BETWEEN lowest AND highest AND f.v4_bits = 32
		UNION ALL
		SELECT f.v6_first - lowest FROM ends, ip_free f WHERE f.group_id = of_group AND f.v6_first BETWEEN lowest AND highest AND f.v6_bits = 128
		UNION ALL
		SELECT e.v4_first - lowest FROM ends, ip_assignment a JOIN ip_entity e ON e.id = a.entity_id
		WHERE due AND a.available_at <= now() AND a.group_id = of_group AND e.v4_first BETWEEN lowest AND highest AND e.v4_last = e.v4_first
		UNION ALL
		SELECT e.v6_first - lowest FROM ends, ip_assignment a JOIN ip_entity e ON e.id = a.entity_id
		WHERE due AND a.available_at <= now() AND a.group_id = of_group AND e.v6_first BETWEEN lowest AND highest AND e.v6_last = e.v6_first),
	run AS (
		SELECT min(n) AS first, max(n) AS last FROM (SELECT n, n - row_number() OVER (ORDER BY n) AS run FROM address) a GROUP BY run)
	SELECT lowest + begins, (masklen(lowest) - size)::smallint
	FROM ends, run, generate_series(0, 10) size CROSS JOIN LATERAL (SELECT (run.first + (1 << size) - 1) >> size << size AS begins) block
	WHERE begins + (1 << size) - 1 <= run.last ORDER BY size DESC, begins LIMIT 1;
END;

CREATE OR REPLACE FUNCTION largest_free(of_group bigint, of_chunk cidr, OUT first inet, OUT bits smallint) RETURNS SETOF record LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
	SELECT l.first, l.bits FROM largest_free(of_group, of_chunk, false) l;
END;
-- +goose StatementEnd
