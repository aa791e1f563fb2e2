CREATE OR REPLACE FUNCTION ip_free_moved() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	UPDATE ip_free SET group_id = NEW.group_id, v4_first = NEW.v4_first, v4_bits = free_bits(NEW.v4_first, NEW.v4_last, NEW.v4_bits),
		v6_first = NEW.v6_first, v6_bits = free_bits(NEW.v6_first, NEW.v6_last, NEW.v6_bits)
	WHERE entity_id = NEW.id;
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ip_free_moved AFTER UPDATE OF group_id, v4_first, v4_last, v4_bits, v6_first, v6_last, v6_bits ON ip_entity FOR EACH ROW
	WHEN ((OLD.group_id, OLD.v4_first, OLD.v4_last, OLD.v4_bits, OLD.v6_first, OLD.v6_last, OLD.v6_bits) IS DISTINCT FROM (NEW.group_id, NEW.v4_first, NEW.v4_last, NEW.v4_bits, NEW.v6_first, NEW.v6_last, NEW.v6_bits))
	EXECUTE FUNCTION ip_free_moved();
