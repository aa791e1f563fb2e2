CREATE OR REPLACE FUNCTION ip_free_changed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO ip_free_delta (group_id, v4_chunk, v6_chunk, free) VALUES
		(OLD.group_id, free_chunk(OLD.v4_first, OLD.v4_bits), free_chunk(OLD.v6_first, OLD.v6_bits), -1),
		(NEW.group_id, free_chunk(NEW.v4_first, NEW.v4_bits), free_chunk(NEW.v6_first, NEW.v6_bits), 1);
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ip_free_changed AFTER UPDATE ON ip_free FOR EACH ROW EXECUTE FUNCTION ip_free_changed();
