CREATE OR REPLACE FUNCTION ip_free_came() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO ip_free_delta (group_id, v4_chunk, v6_chunk, free)
	SELECT group_id, free_chunk(v4_first, v4_bits) AS v4, free_chunk(v6_first, v6_bits) AS v6, count(*) FROM came GROUP BY group_id, v4, v6;
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ip_free_came AFTER INSERT ON ip_free REFERENCING NEW TABLE AS came FOR EACH STATEMENT EXECUTE FUNCTION ip_free_came();
