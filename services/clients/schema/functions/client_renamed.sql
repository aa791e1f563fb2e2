-- What is copied here is not being linked meanwhile.
CREATE OR REPLACE FUNCTION client_renamed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO lock (name, number) VALUES ('sub links', 0) ON CONFLICT DO NOTHING;
	PERFORM FROM lock WHERE name = 'sub links' AND number = 0 FOR UPDATE;
	UPDATE client_reach SET name = NEW.name, search = NEW.search WHERE descendant = NEW.id;
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER client_renamed AFTER UPDATE ON client FOR EACH ROW WHEN (NEW.name <> OLD.name OR NEW.search <> OLD.search) EXECUTE FUNCTION client_renamed();
