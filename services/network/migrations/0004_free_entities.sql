-- +goose Up

-- Who an entity is assigned to is part of its version. A row that has room beside it is updated without its indexes.
ALTER TABLE ip_entity SET (fillfactor = 90);

-- The entities that are assigned to nobody, in the order in which they are handed out: so that allocation reads as
-- little of a group that is nearly full as of an empty one. Triggers keep it, so that no writer can forget to.
--
-- bits is the length of a prefix, 32 or 128 of a single address, NULL of a range.
CREATE TABLE ip_free (
	entity_id bigint PRIMARY KEY REFERENCES ip_entity ON DELETE CASCADE,
	group_id  bigint NOT NULL,
	v4_first  inet,
	v4_bits   smallint,
	v6_first  inet,
	v6_bits   smallint
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000); -- the lowest come and go, and what is gone is walked over

-- +goose StatementBegin
CREATE FUNCTION free_bits(first inet, last inet, bits smallint) RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN first = last THEN masklen(first)::smallint ELSE bits END;
-- +goose StatementEnd

CREATE VIEW ip_unassigned AS
SELECT e.id AS entity_id, e.group_id, e.v4_first, free_bits(e.v4_first, e.v4_last, e.v4_bits) AS v4_bits, e.v6_first, free_bits(e.v6_first, e.v6_last, e.v6_bits) AS v6_bits
FROM ip_entity e WHERE NOT EXISTS (SELECT FROM ip_assignment a WHERE a.entity_id = e.id);

LOCK TABLE ip_entity, ip_assignment IN SHARE ROW EXCLUSIVE MODE;
INSERT INTO ip_free SELECT * FROM ip_unassigned;
CREATE INDEX ip_free_v4 ON ip_free (group_id, v4_first) INCLUDE (v4_bits) WHERE v4_first IS NOT NULL;
CREATE INDEX ip_free_v6 ON ip_free (group_id, v6_first) INCLUDE (v6_bits) WHERE v6_first IS NOT NULL;
CREATE INDEX ip_free_v4_prefix ON ip_free (group_id, v4_bits, v4_first) WHERE v4_bits < 32;
CREATE INDEX ip_free_v6_prefix ON ip_free (group_id, v6_bits, v6_first) WHERE v6_bits < 128;

-- +goose StatementBegin
CREATE FUNCTION ip_free_added() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO ip_free SELECT id, group_id, v4_first, free_bits(v4_first, v4_last, v4_bits), v6_first, free_bits(v6_first, v6_last, v6_bits) FROM added;
	RETURN NULL;
END $$;

CREATE FUNCTION ip_free_moved() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	UPDATE ip_free SET group_id = NEW.group_id, v4_first = NEW.v4_first, v4_bits = free_bits(NEW.v4_first, NEW.v4_last, NEW.v4_bits),
		v6_first = NEW.v6_first, v6_bits = free_bits(NEW.v6_first, NEW.v6_last, NEW.v6_bits)
	WHERE entity_id = NEW.id;
	RETURN NULL;
END $$;

CREATE FUNCTION ip_free_assigned() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	DELETE FROM ip_free USING assigned WHERE ip_free.entity_id = assigned.entity_id;
	RETURN NULL;
END $$;

CREATE FUNCTION ip_free_released() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO ip_free SELECT u.* FROM ip_unassigned u JOIN released r ON r.entity_id = u.entity_id; -- of an entity that is deleted nothing is there
	RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER ip_free_added AFTER INSERT ON ip_entity REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION ip_free_added();
CREATE TRIGGER ip_free_moved AFTER UPDATE OF group_id, v4_first, v4_last, v4_bits, v6_first, v6_last, v6_bits ON ip_entity FOR EACH ROW
	WHEN ((OLD.group_id, OLD.v4_first, OLD.v4_last, OLD.v4_bits, OLD.v6_first, OLD.v6_last, OLD.v6_bits) IS DISTINCT FROM (NEW.group_id, NEW.v4_first, NEW.v4_last, NEW.v4_bits, NEW.v6_first, NEW.v6_last, NEW.v6_bits))
	EXECUTE FUNCTION ip_free_moved();
CREATE TRIGGER ip_free_assigned AFTER INSERT ON ip_assignment REFERENCING NEW TABLE AS assigned FOR EACH STATEMENT EXECUTE FUNCTION ip_free_assigned();
CREATE TRIGGER ip_free_released AFTER DELETE ON ip_assignment REFERENCING OLD TABLE AS released FOR EACH STATEMENT EXECUTE FUNCTION ip_free_released();
