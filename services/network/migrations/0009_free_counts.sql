-- +goose Up
-- How many entities of a group are free, and how large the blocks are that free addresses fill, without reading what is
-- free. Triggers append what a statement changed; a job folds that. What is true at a moment is what is folded, and of
-- the chunks that are not folded yet what they are now.
--
-- A chunk is 1,024 addresses, from a multiple of that on: as many as one call can allocate, so no block reaches from one
-- into another.

CREATE TABLE ip_free_count (
	group_id bigint PRIMARY KEY,
	free     bigint NOT NULL
);

-- The lowest of the largest blocks of free single addresses in each chunk that has any. The bits tell the families apart:
-- 22 to 32, and 118 to 128.
CREATE TABLE ip_free_chunk (
	group_id bigint,
	chunk    cidr,
	first    inet NOT NULL,
	bits     smallint NOT NULL,
	PRIMARY KEY (group_id, chunk)
);
CREATE INDEX ip_free_chunk_by_bits ON ip_free_chunk (group_id, bits, chunk);

CREATE TABLE ip_free_delta (
	id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	group_id bigint NOT NULL,
	v4_chunk cidr,
	v6_chunk cidr,
	free     bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX ip_free_delta_by_group ON ip_free_delta (group_id);

-- +goose StatementBegin
-- The chunk that a single address lies in; NULL for anything else.
CREATE FUNCTION free_chunk(first inet, bits smallint) RETURNS cidr LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN bits = masklen(first) THEN network(set_masklen(first, bits - 10)) END;

-- The lowest of the largest blocks of a chunk: no row where nothing in it is free.
CREATE FUNCTION largest_free(of_group bigint, of_chunk cidr, OUT first inet, OUT bits smallint) RETURNS SETOF record LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
	WITH ends AS (
		SELECT set_masklen(of_chunk::inet, masklen(of_chunk) + 10) AS lowest, set_masklen(broadcast(of_chunk::inet), masklen(of_chunk) + 10) AS highest),
	address AS (
		SELECT f.v4_first - lowest AS n FROM ends, ip_free f WHERE f.group_id = of_group AND f.v4_first BETWEEN lowest AND highest AND f.v4_bits = 32
		UNION ALL
		SELECT f.v6_first - lowest FROM ends, ip_free f WHERE f.group_id = of_group AND f.v6_first BETWEEN lowest AND highest AND f.v6_bits = 128),
	run AS (
		SELECT min(n) AS first, max(n) AS last FROM (SELECT n, n - row_number() OVER (ORDER BY n) AS run FROM address) a GROUP BY run)
	SELECT lowest + begins, (masklen(lowest) - size)::smallint
	FROM ends, run, generate_series(0, 10) size CROSS JOIN LATERAL (SELECT (run.first + (1 << size) - 1) >> size << size AS begins) block
	WHERE begins + (1 << size) - 1 <= run.last ORDER BY size DESC, begins LIMIT 1;
END;
-- +goose StatementEnd

-- What is folded when everything is counted.
CREATE VIEW ip_free_counted AS
SELECT group_id, count(*) AS free FROM ip_free GROUP BY group_id;

CREATE VIEW ip_free_chunked AS
SELECT c.group_id, c.chunk, l.first, l.bits
FROM (SELECT group_id, free_chunk(v4_first, v4_bits) AS chunk FROM ip_free UNION SELECT group_id, free_chunk(v6_first, v6_bits) FROM ip_free) c
CROSS JOIN LATERAL largest_free(c.group_id, c.chunk) l;

LOCK TABLE ip_entity, ip_assignment, ip_free IN SHARE ROW EXCLUSIVE MODE;
INSERT INTO ip_free_count SELECT * FROM ip_free_counted;
INSERT INTO ip_free_chunk SELECT * FROM ip_free_chunked;

-- +goose StatementBegin
CREATE FUNCTION ip_free_came() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO ip_free_delta (group_id, v4_chunk, v6_chunk, free)
	SELECT group_id, free_chunk(v4_first, v4_bits) AS v4, free_chunk(v6_first, v6_bits) AS v6, count(*) FROM came GROUP BY group_id, v4, v6;
	RETURN NULL;
END $$;

CREATE FUNCTION ip_free_went() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO ip_free_delta (group_id, v4_chunk, v6_chunk, free)
	SELECT group_id, free_chunk(v4_first, v4_bits) AS v4, free_chunk(v6_first, v6_bits) AS v6, -count(*) FROM went GROUP BY group_id, v4, v6;
	RETURN NULL;
END $$;

CREATE FUNCTION ip_free_changed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO ip_free_delta (group_id, v4_chunk, v6_chunk, free) VALUES
		(OLD.group_id, free_chunk(OLD.v4_first, OLD.v4_bits), free_chunk(OLD.v6_first, OLD.v6_bits), -1),
		(NEW.group_id, free_chunk(NEW.v4_first, NEW.v4_bits), free_chunk(NEW.v6_first, NEW.v6_bits), 1);
	RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER ip_free_came AFTER INSERT ON ip_free REFERENCING NEW TABLE AS came FOR EACH STATEMENT EXECUTE FUNCTION ip_free_came();
CREATE TRIGGER ip_free_went AFTER DELETE ON ip_free REFERENCING OLD TABLE AS went FOR EACH STATEMENT EXECUTE FUNCTION ip_free_went();
CREATE TRIGGER ip_free_changed AFTER UPDATE ON ip_free FOR EACH ROW EXECUTE FUNCTION ip_free_changed();
