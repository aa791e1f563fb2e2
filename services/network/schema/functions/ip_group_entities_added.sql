CREATE OR REPLACE FUNCTION ip_group_entities_added() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO ip_group_delta (group_id, entities) SELECT group_id, count(*) FROM added GROUP BY group_id;
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ip_group_entities_added AFTER INSERT ON ip_entity REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION ip_group_entities_added();
