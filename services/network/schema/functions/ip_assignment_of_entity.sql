CREATE OR REPLACE FUNCTION ip_assignment_of_entity() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	SELECT group_id, name, vlan INTO NEW.group_id, NEW.entity_name, NEW.vlan FROM ip_entity WHERE id = NEW.entity_id FOR SHARE; -- which nobody edits from now on
	SELECT name INTO NEW.owner_name FROM ref WHERE type = 'client' AND id = NEW.owner_id;
	RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER ip_assignment_of_entity BEFORE INSERT ON ip_assignment FOR EACH ROW EXECUTE FUNCTION ip_assignment_of_entity();
