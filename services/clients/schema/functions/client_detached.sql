-- Nobody could lift the suspension of an integration that the client no longer belongs to. An admin can.
CREATE OR REPLACE FUNCTION client_detached() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO suspension (client_id, kind) SELECT client_id, 'admin' FROM suspension WHERE client_id = NEW.id AND kind = 'integration' ON CONFLICT DO NOTHING;
	DELETE FROM suspension WHERE client_id = NEW.id AND kind = 'integration';
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER client_detached AFTER UPDATE OF integration_id ON client FOR EACH ROW
	WHEN (OLD.integration_id IS NOT NULL AND NEW.integration_id IS NULL) EXECUTE FUNCTION client_detached();
