CREATE OR REPLACE FUNCTION forward_gateway_groups() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	DELETE FROM forward_gateway_group WHERE gateway_id = NEW.id AND group_id <> ALL (coalesce(NEW.group_ids, '{}'));
	INSERT INTO forward_gateway_group SELECT NEW.id, unnest(NEW.group_ids) ON CONFLICT DO NOTHING;
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER forward_gateway_groups AFTER INSERT OR UPDATE OF group_ids ON forward_gateway FOR EACH ROW EXECUTE FUNCTION forward_gateway_groups();
