CREATE OR REPLACE FUNCTION ip_group_server_changed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO ip_group_server_delta (group_id, server_id, entities)
	SELECT * FROM (VALUES (OLD.group_id, OLD.server_id, -1), (NEW.group_id, NEW.server_id, 1)) AS changed (group_id, server_id, entities)
	WHERE server_id IS NOT NULL;
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ip_group_server_changed AFTER UPDATE ON ip_assignment FOR EACH ROW
	WHEN ((OLD.group_id, OLD.server_id) IS DISTINCT FROM (NEW.group_id, NEW.server_id)) EXECUTE FUNCTION ip_group_server_changed();
