CREATE OR REPLACE FUNCTION ip_held_removed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO ip_held_delta (group_id, reserved, quarantined)
	SELECT group_id, count(available_at) - count(*), -count(available_at) FROM removed WHERE owner_id IS NULL GROUP BY group_id;
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ip_held_removed AFTER DELETE ON ip_assignment REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION ip_held_removed();
