CREATE OR REPLACE FUNCTION ip_free_added() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO ip_free SELECT id, group_id, v4_first, free_bits(v4_first, v4_last, v4_bits), v6_first, free_bits(v6_first, v6_last, v6_bits) FROM added;
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ip_free_added AFTER INSERT ON ip_entity REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION ip_free_added();
