-- A gift ends with the ownership, whichever release ends that.
CREATE OR REPLACE FUNCTION ip_assignment_given() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	NEW.via_id := NULL;
	NEW.via_link := NULL;
	RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER ip_assignment_given BEFORE UPDATE OF owner_id ON ip_assignment FOR EACH ROW
	WHEN (OLD.via_id IS NOT NULL AND OLD.owner_id IS DISTINCT FROM NEW.owner_id) EXECUTE FUNCTION ip_assignment_given();
