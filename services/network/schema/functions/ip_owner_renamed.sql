CREATE OR REPLACE FUNCTION ip_owner_renamed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	UPDATE ip_assignment SET owner_name = NEW.name WHERE owner_id = NEW.id AND NOT owner_missing;
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ip_owner_renamed AFTER UPDATE ON ref FOR EACH ROW
	WHEN (NEW.type = 'client' AND NOT NEW.gone AND OLD.name <> NEW.name) EXECUTE FUNCTION ip_owner_renamed();
