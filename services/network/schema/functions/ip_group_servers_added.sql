CREATE OR REPLACE FUNCTION ip_group_servers_added() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO ip_group_server_delta (group_id, server_id, entities)
	SELECT group_id, server_id, count(*) FROM added WHERE server_id IS NOT NULL GROUP BY group_id, server_id;
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ip_group_servers_added AFTER INSERT ON ip_assignment REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION ip_group_servers_added();
