CREATE OR REPLACE FUNCTION ip_group_entities_removed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO ip_group_delta (group_id, entities) SELECT group_id, -count(*) FROM removed GROUP BY group_id;
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ip_group_entities_removed AFTER DELETE ON ip_entity REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION ip_group_entities_removed();
