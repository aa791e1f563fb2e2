-- +goose Up
-- An owner's entities are found by VLAN and sorted by name without reading all that the owner has: an assignment knows
-- its entity's name and VLAN, as it knows its group.
--
-- The rows are written anew: of rows that are edited the old ones, too, would stand in the indexes that are made here.
LOCK TABLE ip_entity, ip_assignment IN SHARE ROW EXCLUSIVE MODE;
SET LOCAL maintenance_work_mem = '256MB';
CREATE TEMPORARY TABLE assigned ON COMMIT DROP AS
SELECT entity_id, a.group_id, owner_id, owner_name, server_id, server_name, e.name, e.vlan FROM ip_assignment a JOIN ip_entity e ON e.id = a.entity_id;
DROP TRIGGER ip_assignment_in_group ON ip_assignment;
DROP FUNCTION ip_assignment_in_group;
DROP INDEX ip_assignment_by_owner, ip_assignment_by_server, ip_assignment_search;
TRUNCATE ip_assignment;
ALTER TABLE ip_assignment DROP CONSTRAINT ip_assignment_pkey, DROP CONSTRAINT ip_assignment_of_entity, DISABLE TRIGGER USER,
	ADD COLUMN entity_name text NOT NULL, ADD COLUMN vlan integer;
INSERT INTO ip_assignment (entity_id, group_id, owner_id, owner_name, server_id, server_name, entity_name, vlan) SELECT * FROM assigned ORDER BY entity_id;
ALTER TABLE ip_assignment ENABLE TRIGGER USER, ADD PRIMARY KEY (entity_id),
	ADD CONSTRAINT ip_assignment_of_entity FOREIGN KEY (group_id, entity_id) REFERENCES ip_entity (group_id, id) ON UPDATE CASCADE ON DELETE CASCADE;

CREATE INDEX ip_assignment_by_owner ON ip_assignment (owner_id, entity_id);
CREATE INDEX ip_assignment_by_owner_and_name ON ip_assignment (owner_id, entity_name, entity_id);
CREATE INDEX ip_assignment_by_owner_and_vlan ON ip_assignment (owner_id, vlan, entity_id) WHERE vlan IS NOT NULL;
CREATE INDEX ip_assignment_by_server ON ip_assignment (server_id) WHERE server_id IS NOT NULL;
CREATE INDEX ip_assignment_search ON ip_assignment USING gin (search gin_trgm_ops) WHERE search IS NOT NULL;

-- +goose StatementBegin
CREATE FUNCTION ip_assignment_of_entity() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	SELECT group_id, name, vlan INTO NEW.group_id, NEW.entity_name, NEW.vlan FROM ip_entity WHERE id = NEW.entity_id FOR SHARE; -- which nobody edits from now on
	RETURN NEW;
END $$;

CREATE FUNCTION ip_assignment_renamed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	UPDATE ip_assignment SET entity_name = NEW.name, vlan = NEW.vlan WHERE entity_id = NEW.id;
	RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER ip_assignment_of_entity BEFORE INSERT ON ip_assignment FOR EACH ROW EXECUTE FUNCTION ip_assignment_of_entity();
CREATE TRIGGER ip_assignment_renamed AFTER UPDATE ON ip_entity FOR EACH ROW
	WHEN ((OLD.name, OLD.vlan) IS DISTINCT FROM (NEW.name, NEW.vlan)) EXECUTE FUNCTION ip_assignment_renamed();

-- What of ip_entity_view a list asks for, from the assignment's side.
CREATE VIEW ip_entity_of_owner AS
SELECT a.entity_id AS id, a.owner_id, a.server_id AS owner_server_id, a.group_id, a.entity_name AS name, a.vlan, a.search AS owner_search,
	e.billing_id, e.search, e.v4_span, e.v6_span
FROM ip_assignment a LEFT JOIN ip_entity e ON e.id = a.entity_id; -- LEFT lets the planner leave out what is not asked for

-- All trigrams of a number are frequent, and how often each is there grows with the table. Pieces of five letters are as
-- good as any text's own.
-- +goose StatementBegin
CREATE FUNCTION pieces(of_text text) RETURNS text[] LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN ARRAY(SELECT substr(of_text, n, 5) FROM generate_series(1, length(of_text) - 4) n);
-- +goose StatementEnd

CREATE INDEX ip_entity_pieces ON ip_entity USING gin (pieces(search)) WHERE search IS NOT NULL;
CREATE INDEX ip_assignment_pieces ON ip_assignment USING gin (pieces(search)) WHERE search IS NOT NULL;
