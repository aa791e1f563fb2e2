-- What writes the column by itself is the previous release, or a restore that repairs an account: an admin can lift it.
CREATE OR REPLACE FUNCTION client_disabled() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	IF NEW.disabled THEN
		INSERT INTO suspension (client_id, kind) VALUES (NEW.id, 'admin') ON CONFLICT DO NOTHING;
	ELSE
		DELETE FROM suspension WHERE client_id = NEW.id;
	END IF;
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER client_disabled AFTER UPDATE OF disabled ON client FOR EACH ROW
	WHEN (NEW.disabled <> OLD.disabled AND pg_trigger_depth() = 0) EXECUTE FUNCTION client_disabled();
CREATE OR REPLACE TRIGGER client_made_disabled AFTER INSERT ON client FOR EACH ROW WHEN (NEW.disabled) EXECUTE FUNCTION client_disabled();
