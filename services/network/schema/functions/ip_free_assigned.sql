CREATE OR REPLACE FUNCTION ip_free_assigned() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	DELETE FROM ip_free USING assigned WHERE ip_free.entity_id = assigned.entity_id;
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ip_free_assigned AFTER INSERT ON ip_assignment REFERENCING NEW TABLE AS assigned FOR EACH STATEMENT EXECUTE FUNCTION ip_free_assigned();
