-- An entity that gets an owner is no longer reserved or quarantined, whichever release assigns it.
CREATE OR REPLACE FUNCTION ip_assignment_claimed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	NEW.note := NULL;
	NEW.available_at := NULL;
	RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER ip_assignment_claimed BEFORE UPDATE OF owner_id ON ip_assignment FOR EACH ROW
	WHEN (OLD.owner_id IS NULL AND NEW.owner_id IS NOT NULL) EXECUTE FUNCTION ip_assignment_claimed();
