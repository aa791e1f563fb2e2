CREATE OR REPLACE FUNCTION profile_drivers() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	DELETE FROM profile_driver WHERE profile_id = NEW.id AND driver_id <> ALL (coalesce(NEW.driver_ids, '{}'));
	INSERT INTO profile_driver SELECT NEW.id, unnest(NEW.driver_ids) ON CONFLICT DO NOTHING;
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER profile_drivers AFTER INSERT OR UPDATE OF driver_ids ON profile FOR EACH ROW EXECUTE FUNCTION profile_drivers();
