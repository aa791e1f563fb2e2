CREATE OR REPLACE FUNCTION profile_shell_scripts() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	DELETE FROM profile_shell_after WHERE profile_id = NEW.id AND shell_script_id <> ALL (coalesce(NEW.shell_after, '{}'));
	INSERT INTO profile_shell_after SELECT NEW.id, unnest(NEW.shell_after) ON CONFLICT DO NOTHING;
	DELETE FROM profile_shell_during WHERE profile_id = NEW.id AND shell_script_id <> ALL (coalesce(NEW.shell_during, '{}'));
	INSERT INTO profile_shell_during SELECT NEW.id, unnest(NEW.shell_during) ON CONFLICT DO NOTHING;
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER profile_shell_scripts AFTER INSERT OR UPDATE OF shell_after, shell_during ON profile FOR EACH ROW EXECUTE FUNCTION profile_shell_scripts();
