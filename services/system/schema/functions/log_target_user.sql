CREATE OR REPLACE FUNCTION log_target_user() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	SELECT user_url INTO NEW.user_url FROM log WHERE id = NEW.log_id;
	RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER log_target_user BEFORE INSERT ON log_target FOR EACH ROW WHEN (NEW.user_url IS NULL) EXECUTE FUNCTION log_target_user();
