CREATE OR REPLACE FUNCTION ip_assignment_renamed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	UPDATE ip_assignment SET entity_name = NEW.name, vlan = NEW.vlan WHERE entity_id = NEW.id;
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ip_assignment_renamed AFTER UPDATE ON ip_entity FOR EACH ROW
	WHEN ((OLD.name, OLD.vlan) IS DISTINCT FROM (NEW.name, NEW.vlan)) EXECUTE FUNCTION ip_assignment_renamed();
