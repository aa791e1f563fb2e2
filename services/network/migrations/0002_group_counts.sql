-- +goose Up
-- How many entities a group has, and how many servers they are assigned to, without counting them and without a row that
-- all who write into a group wait for. Triggers append what a statement changed, in its own transaction; a job folds that
-- into the counts. What is true at a moment is the count and what is not folded yet.
--
-- A count that is 0 has no row, so nothing is left of a group that is deleted: it had no entities.

CREATE TABLE ip_group_count (
	group_id bigint PRIMARY KEY,
	entities bigint NOT NULL,
	servers  bigint NOT NULL
);

CREATE TABLE ip_group_delta (
	id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	group_id bigint NOT NULL,
	entities bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE INDEX ip_group_delta_by_group ON ip_group_delta (group_id);

-- A server counts once for a group, however many of the group's entities it has: so these are counted, too.
CREATE TABLE ip_group_server_count (
	group_id  bigint,
	server_id bigint,
	entities  bigint NOT NULL,
	PRIMARY KEY (group_id, server_id)
);

CREATE TABLE ip_group_server_delta (
	id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	group_id  bigint NOT NULL,
	server_id bigint NOT NULL,
	entities  bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE INDEX ip_group_server_delta_by_group ON ip_group_server_delta (group_id);

-- An assignment knows its entity's group, so that what it counts for can be told also when the entity is being moved or
-- deleted.
LOCK TABLE ip_entity, ip_assignment IN SHARE ROW EXCLUSIVE MODE;
ALTER TABLE ip_assignment ADD COLUMN group_id bigint;
UPDATE ip_assignment a SET group_id = e.group_id FROM ip_entity e WHERE e.id = a.entity_id;
ALTER TABLE ip_assignment ALTER COLUMN group_id SET NOT NULL;
DROP INDEX ip_entity_by_group;
ALTER TABLE ip_entity ADD CONSTRAINT ip_entity_by_group UNIQUE (group_id, id);
ALTER TABLE ip_assignment DROP CONSTRAINT ip_assignment_entity_id_fkey,
	ADD CONSTRAINT ip_assignment_of_entity FOREIGN KEY (group_id, entity_id) REFERENCES ip_entity (group_id, id) ON UPDATE CASCADE ON DELETE CASCADE;

-- +goose StatementBegin
CREATE FUNCTION ip_assignment_in_group() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	SELECT group_id INTO NEW.group_id FROM ip_entity WHERE id = NEW.entity_id;
	RETURN NEW;
END $$;
-- +goose StatementEnd

CREATE TRIGGER ip_assignment_in_group BEFORE INSERT ON ip_assignment FOR EACH ROW WHEN (NEW.group_id IS NULL) EXECUTE FUNCTION ip_assignment_in_group();

-- What the counts are when everything is counted.
CREATE VIEW ip_group_server_counted AS
SELECT group_id, server_id, count(*) AS entities FROM ip_assignment WHERE server_id IS NOT NULL GROUP BY group_id, server_id;

CREATE VIEW ip_group_counted AS
SELECT group_id, e.entities, coalesce(s.servers, 0) AS servers
FROM (SELECT group_id, count(*) AS entities FROM ip_entity GROUP BY group_id) e
LEFT JOIN (SELECT group_id, count(*) AS servers FROM ip_group_server_counted GROUP BY group_id) s USING (group_id);

INSERT INTO ip_group_server_count SELECT * FROM ip_group_server_counted;
INSERT INTO ip_group_count SELECT * FROM ip_group_counted;

-- +goose StatementBegin
CREATE FUNCTION ip_group_entities_added() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO ip_group_delta (group_id, entities) SELECT group_id, count(*) FROM added GROUP BY group_id;
	RETURN NULL;
END $$;

CREATE FUNCTION ip_group_entities_removed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO ip_group_delta (group_id, entities) SELECT group_id, -count(*) FROM removed GROUP BY group_id;
	RETURN NULL;
END $$;

CREATE FUNCTION ip_group_entity_moved() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO ip_group_delta (group_id, entities) VALUES (OLD.group_id, -1), (NEW.group_id, 1);
	RETURN NULL;
END $$;

CREATE FUNCTION ip_group_servers_added() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO ip_group_server_delta (group_id, server_id, entities)
	SELECT group_id, server_id, count(*) FROM added WHERE server_id IS NOT NULL GROUP BY group_id, server_id;
	RETURN NULL;
END $$;

CREATE FUNCTION ip_group_servers_removed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO ip_group_server_delta (group_id, server_id, entities)
	SELECT group_id, server_id, -count(*) FROM removed WHERE server_id IS NOT NULL GROUP BY group_id, server_id;
	RETURN NULL;
END $$;

CREATE FUNCTION ip_group_server_changed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO ip_group_server_delta (group_id, server_id, entities)
	SELECT * FROM (VALUES (OLD.group_id, OLD.server_id, -1), (NEW.group_id, NEW.server_id, 1)) AS changed (group_id, server_id, entities)
	WHERE server_id IS NOT NULL;
	RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER ip_group_entities_added AFTER INSERT ON ip_entity REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION ip_group_entities_added();
CREATE TRIGGER ip_group_entities_removed AFTER DELETE ON ip_entity REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION ip_group_entities_removed();
CREATE TRIGGER ip_group_entity_moved AFTER UPDATE ON ip_entity FOR EACH ROW
	WHEN (OLD.group_id <> NEW.group_id) EXECUTE FUNCTION ip_group_entity_moved();
CREATE TRIGGER ip_group_servers_added AFTER INSERT ON ip_assignment REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION ip_group_servers_added();
CREATE TRIGGER ip_group_servers_removed AFTER DELETE ON ip_assignment REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION ip_group_servers_removed();
CREATE TRIGGER ip_group_server_changed AFTER UPDATE ON ip_assignment FOR EACH ROW
	WHEN ((OLD.group_id, OLD.server_id) IS DISTINCT FROM (NEW.group_id, NEW.server_id)) EXECUTE FUNCTION ip_group_server_changed();

CREATE OR REPLACE VIEW ip_group_view AS
SELECT g.id, g.version, g.name, g.billing_id, g.reserved, g.search,
	coalesce(c.entities, 0) + coalesce((SELECT sum(d.entities) FROM ip_group_delta d WHERE d.group_id = g.id), 0)::bigint AS entities_count,
	coalesce(c.servers, 0) + coalesce((
		SELECT sum((coalesce(s.entities, 0) + d.entities > 0)::int - (coalesce(s.entities, 0) > 0)::int)
		FROM (SELECT group_id, server_id, sum(entities) AS entities FROM ip_group_server_delta WHERE group_id = g.id GROUP BY group_id, server_id) d
		LEFT JOIN ip_group_server_count s USING (group_id, server_id)), 0)::bigint AS servers_count,
	0::bigint AS servers_inventory
FROM ip_group g LEFT JOIN ip_group_count c ON c.group_id = g.id;
