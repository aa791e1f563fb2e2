CREATE OR REPLACE FUNCTION ip_free_went() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO ip_free_delta (group_id, v4_chunk, v6_chunk, free)
	SELECT group_id, free_chunk(v4_first, v4_bits) AS v4, free_chunk(v6_first, v6_bits) AS v6, -count(*) FROM went GROUP BY group_id, v4, v6;
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ip_free_went AFTER DELETE ON ip_free REFERENCING OLD TABLE AS went FOR EACH STATEMENT EXECUTE FUNCTION ip_free_went();
