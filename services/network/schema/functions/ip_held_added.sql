CREATE OR REPLACE FUNCTION ip_held_added() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO ip_held_delta (group_id, reserved, quarantined)
	SELECT group_id, count(*) - count(available_at), count(available_at) FROM added WHERE owner_id IS NULL GROUP BY group_id;
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ip_held_added AFTER INSERT ON ip_assignment REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION ip_held_added();
