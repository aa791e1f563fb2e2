-- A client is disabled while it has a suspension. The previous release reads and writes only the column.
CREATE OR REPLACE FUNCTION suspension_changed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	UPDATE client c SET disabled = NOT c.disabled
	WHERE c.id = coalesce(NEW.client_id, OLD.client_id) AND c.disabled <> EXISTS (SELECT FROM suspension s WHERE s.client_id = c.id);
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER suspension_changed AFTER INSERT OR DELETE ON suspension FOR EACH ROW EXECUTE FUNCTION suspension_changed();
