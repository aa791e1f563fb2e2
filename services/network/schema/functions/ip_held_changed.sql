CREATE OR REPLACE FUNCTION ip_held_changed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO ip_held_delta (group_id, reserved, quarantined)
	SELECT group_id, CASE WHEN available_at IS NULL THEN n ELSE 0 END, CASE WHEN available_at IS NULL THEN 0 ELSE n END
	FROM (VALUES (OLD.group_id, OLD.owner_id, OLD.available_at, -1), (NEW.group_id, NEW.owner_id, NEW.available_at, 1)) AS changed (group_id, owner_id, available_at, n)
	WHERE owner_id IS NULL;
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ip_held_changed AFTER UPDATE ON ip_assignment FOR EACH ROW
	WHEN ((OLD.group_id, OLD.owner_id IS NULL, OLD.available_at IS NULL) IS DISTINCT FROM (NEW.group_id, NEW.owner_id IS NULL, NEW.available_at IS NULL))
	EXECUTE FUNCTION ip_held_changed();
