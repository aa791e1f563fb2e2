CREATE OR REPLACE FUNCTION ip_group_entity_moved() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO ip_group_delta (group_id, entities) VALUES (OLD.group_id, -1), (NEW.group_id, 1);
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ip_group_entity_moved AFTER UPDATE ON ip_entity FOR EACH ROW
	WHEN (OLD.group_id <> NEW.group_id) EXECUTE FUNCTION ip_group_entity_moved();
