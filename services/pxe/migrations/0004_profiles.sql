-- +goose Up
CREATE TABLE profile (
	id                       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version                  bigint NOT NULL DEFAULT 1,
	name                     text NOT NULL CONSTRAINT profile__name UNIQUE,
	billing_id               text,
	access_client            boolean NOT NULL,
	boot_script_id           bigint NOT NULL CONSTRAINT profile__boot_script REFERENCES boot_script,
	preseed_id               bigint CONSTRAINT profile__preseed REFERENCES preseed,
	-- The email template is another service's: its row of ref is what is known of it here.
	email_template_type      text GENERATED ALWAYS AS ('email/template') STORED,
	email_template_id        bigint,
	shell_after              bigint[],
	shell_during             bigint[],
	time_until_marked_failed integer,
	search                   text NOT NULL GENERATED ALWAYS AS (E'\n' || lower(name) || E'\n' || lower(coalesce(billing_id, ''))) STORED,
	CONSTRAINT profile__email__template FOREIGN KEY (email_template_type, email_template_id) REFERENCES ref (type, id)
);
CREATE INDEX profile_search ON profile USING gin (search gin_trgm_ops);
CREATE INDEX profile_by_name ON profile (name, id);
CREATE INDEX profile_by_billing_id ON profile (billing_id, id);
CREATE INDEX profile_by_boot_script ON profile (boot_script_id, id);
CREATE INDEX profile_by_preseed ON profile (preseed_id, id);
CREATE INDEX profile_by_email_template ON profile (email_template_id);

-- The profiles' shell scripts again, one a row, so that all of them exist.
CREATE TABLE profile_shell_after (
	profile_id      bigint REFERENCES profile ON DELETE CASCADE,
	shell_script_id bigint CONSTRAINT profile__shell__after REFERENCES shell_script,
	PRIMARY KEY (profile_id, shell_script_id)
);
CREATE INDEX profile_shell_after_by_script ON profile_shell_after (shell_script_id);
CREATE TABLE profile_shell_during (
	profile_id      bigint REFERENCES profile ON DELETE CASCADE,
	shell_script_id bigint CONSTRAINT profile__shell__during REFERENCES shell_script,
	PRIMARY KEY (profile_id, shell_script_id)
);
CREATE INDEX profile_shell_during_by_script ON profile_shell_during (shell_script_id);

-- +goose StatementBegin
CREATE FUNCTION profile_shell_scripts() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	DELETE FROM profile_shell_after WHERE profile_id = NEW.id AND shell_script_id <> ALL (coalesce(NEW.shell_after, '{}'));
	INSERT INTO profile_shell_after SELECT NEW.id, unnest(NEW.shell_after) ON CONFLICT DO NOTHING;
	DELETE FROM profile_shell_during WHERE profile_id = NEW.id AND shell_script_id <> ALL (coalesce(NEW.shell_during, '{}'));
	INSERT INTO profile_shell_during SELECT NEW.id, unnest(NEW.shell_during) ON CONFLICT DO NOTHING;
	RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER profile_shell_scripts AFTER INSERT OR UPDATE OF shell_after, shell_during ON profile FOR EACH ROW EXECUTE FUNCTION profile_shell_scripts();

CREATE VIEW profile_view AS
SELECT p.id, p.version, p.name, p.billing_id, p.access_client, p.boot_script_id, b.name AS boot_script_name, p.preseed_id, s.name AS preseed_name,
	p.email_template_id, r.name AS email_template_name, coalesce(p.shell_after, '{}') AS shell_after, coalesce(p.shell_during, '{}') AS shell_during,
	p.time_until_marked_failed, p.search
FROM profile p
JOIN boot_script b ON b.id = p.boot_script_id
LEFT JOIN preseed s ON s.id = p.preseed_id
LEFT JOIN ref r ON r.type = p.email_template_type AND r.id = p.email_template_id;
