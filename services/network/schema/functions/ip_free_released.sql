CREATE OR REPLACE FUNCTION ip_free_released() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO ip_free SELECT u.* FROM ip_unassigned u JOIN released r ON r.entity_id = u.entity_id; -- of an entity that is deleted nothing is there
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ip_free_released AFTER DELETE ON ip_assignment REFERENCING OLD TABLE AS released FOR EACH STATEMENT EXECUTE FUNCTION ip_free_released();
