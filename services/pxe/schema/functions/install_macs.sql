CREATE OR REPLACE FUNCTION install_macs() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	goes_on boolean := NEW.status IN ('waiting', 'booting', 'installing');
BEGIN
	IF TG_OP = 'INSERT' THEN
		INSERT INTO install_mac (install_id, mac) SELECT NEW.id, mac FROM unnest(NEW.host_macs) mac ORDER BY mac;
	ELSE
		UPDATE install_mac SET under_way = goes_on, taken = CASE WHEN goes_on THEN nextval('install_revision') ELSE taken END
		WHERE install_id = NEW.id AND under_way <> goes_on;
	END IF;
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER install_macs AFTER INSERT OR UPDATE OF status ON install FOR EACH ROW EXECUTE FUNCTION install_macs();
