-- A reservation or a quarantine ends only when available_at has passed. An older release deletes the row when it edits the
-- entity, because to it the entity has no owner. A row goes with its entity, which is then deleted already.
CREATE OR REPLACE FUNCTION ip_assignment_kept() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	IF EXISTS (SELECT FROM ip_entity WHERE id = OLD.entity_id) THEN
		RETURN NULL;
	END IF;
	RETURN OLD;
END $$;

CREATE OR REPLACE TRIGGER ip_assignment_kept BEFORE DELETE ON ip_assignment FOR EACH ROW
	WHEN (OLD.owner_id IS NULL AND (OLD.available_at IS NULL OR OLD.available_at > now())) EXECUTE FUNCTION ip_assignment_kept();
