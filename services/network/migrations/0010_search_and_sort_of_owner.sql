-- +goose NO TRANSACTION
-- +goose Up
-- An owner's entities are found by VLAN and sorted by name without reading all that the owner has: an assignment knows
-- its entity's name and VLAN, as it knows its group.
--
-- That is done in steps, each of which may be begun anew, while others go on writing: nobody waits for more than a moment.
--
-- replaces 890c133b2fcf8ea8a2268c60e2e9686d77175759fc6c5e5377ad4b2bd2331bbc, which wrote all rows anew and held writes meanwhile.
SET maintenance_work_mem = '256MB';

-- From now on who writes fills the new columns. No step locks two tables: others lock them in another order.
ALTER TABLE ip_assignment ADD COLUMN IF NOT EXISTS entity_name text, ADD COLUMN IF NOT EXISTS vlan integer;

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION ip_assignment_renamed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	UPDATE ip_assignment SET entity_name = NEW.name, vlan = NEW.vlan WHERE entity_id = NEW.id;
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ip_assignment_renamed AFTER UPDATE ON ip_entity FOR EACH ROW
	WHEN ((OLD.name, OLD.vlan) IS DISTINCT FROM (NEW.name, NEW.vlan)) EXECUTE FUNCTION ip_assignment_renamed();
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION ip_assignment_of_entity() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	SELECT group_id, name, vlan INTO NEW.group_id, NEW.entity_name, NEW.vlan FROM ip_entity WHERE id = NEW.entity_id FOR SHARE; -- which nobody edits from now on
	RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER ip_assignment_of_entity BEFORE INSERT ON ip_assignment FOR EACH ROW EXECUTE FUNCTION ip_assignment_of_entity();
DROP TRIGGER IF EXISTS ip_assignment_in_group ON ip_assignment;
DROP FUNCTION IF EXISTS ip_assignment_in_group;
-- +goose StatementEnd

-- What was there before, so many rows at a time. A row that somebody has written to since then is right already.
-- +goose StatementBegin
DO $$ DECLARE first bigint := 0; last bigint; BEGIN
	LOOP
		SELECT max(entity_id) INTO last FROM (SELECT entity_id FROM ip_assignment WHERE entity_id > first ORDER BY entity_id LIMIT 5000) batch;
		EXIT WHEN last IS NULL;
		UPDATE ip_assignment a SET entity_name = e.name, vlan = e.vlan FROM ip_entity e
		WHERE e.id = a.entity_id AND a.entity_id > first AND a.entity_id <= last AND a.entity_name IS NULL;
		COMMIT;
		first := last;
	END LOOP;
END $$;
-- +goose StatementEnd

-- With a constraint that is known to hold, SET NOT NULL reads no rows.
ALTER TABLE ip_assignment DROP CONSTRAINT IF EXISTS ip_assignment_named;
ALTER TABLE ip_assignment ADD CONSTRAINT ip_assignment_named CHECK (entity_name IS NOT NULL) NOT VALID;
ALTER TABLE ip_assignment VALIDATE CONSTRAINT ip_assignment_named;
ALTER TABLE ip_assignment ALTER COLUMN entity_name SET NOT NULL;
ALTER TABLE ip_assignment DROP CONSTRAINT ip_assignment_named;

-- An index that an earlier try left may be half of one.
VACUUM ip_assignment;
DROP INDEX IF EXISTS ip_assignment_by_owner_and_name, ip_assignment_by_owner_and_vlan;
CREATE INDEX CONCURRENTLY ip_assignment_by_owner_and_name ON ip_assignment (owner_id, entity_name, entity_id);
CREATE INDEX CONCURRENTLY ip_assignment_by_owner_and_vlan ON ip_assignment (owner_id, vlan, entity_id) WHERE vlan IS NOT NULL;

-- What of ip_entity_view a list asks for, from the assignment's side.
CREATE OR REPLACE VIEW ip_entity_of_owner AS
SELECT a.entity_id AS id, a.owner_id, a.server_id AS owner_server_id, a.group_id, a.entity_name AS name, a.vlan, a.search AS owner_search,
	e.billing_id, e.search, e.v4_span, e.v6_span
FROM ip_assignment a LEFT JOIN ip_entity e ON e.id = a.entity_id; -- LEFT lets the planner leave out what is not asked for

-- All trigrams of a number are frequent, and how often each is there grows with the table. Pieces of five letters are as
-- good as any text's own.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION pieces(of_text text) RETURNS text[] LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN ARRAY(SELECT substr(of_text, n, 5) FROM generate_series(1, length(of_text) - 4) n);
-- +goose StatementEnd

DROP INDEX IF EXISTS ip_entity_pieces, ip_assignment_pieces;
CREATE INDEX CONCURRENTLY ip_entity_pieces ON ip_entity USING gin (pieces(search)) WHERE search IS NOT NULL;
CREATE INDEX CONCURRENTLY ip_assignment_pieces ON ip_assignment USING gin (pieces(search)) WHERE search IS NOT NULL;

RESET maintenance_work_mem;
