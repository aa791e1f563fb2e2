CREATE OR REPLACE FUNCTION ip_group_servers_removed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO ip_group_server_delta (group_id, server_id, entities)
	SELECT group_id, server_id, -count(*) FROM removed WHERE server_id IS NOT NULL GROUP BY group_id, server_id;
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ip_group_servers_removed AFTER DELETE ON ip_assignment REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION ip_group_servers_removed();
