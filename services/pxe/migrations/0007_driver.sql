-- +goose Up
-- A driver's content is the store's: the file drivers/<id>.
CREATE TABLE driver (
	id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version bigint NOT NULL DEFAULT 1,
	name    text NOT NULL CONSTRAINT driver__name UNIQUE,
	content text NOT NULL, -- sha256:…, as the file has it
	search  text NOT NULL GENERATED ALWAYS AS (E'\n' || lower(name)) STORED
);
CREATE INDEX driver_search ON driver USING gin (search gin_trgm_ops);
CREATE INDEX driver_by_name ON driver (name, id);

CREATE VIEW driver_view AS
SELECT d.id, d.version, d.name, d.content, f.id AS file_id, f.size, f.sha256, d.search
FROM driver d
JOIN stored_file f ON f.path = 'drivers/' || d.id;

ALTER TABLE profile ADD driver_ids bigint[];

-- The profiles' drivers again, one a row, so that all of them exist.
CREATE TABLE profile_driver (
	profile_id bigint REFERENCES profile ON DELETE CASCADE,
	driver_id  bigint CONSTRAINT profile__drivers REFERENCES driver,
	PRIMARY KEY (profile_id, driver_id)
);
CREATE INDEX profile_driver_by_driver ON profile_driver (driver_id);

-- +goose StatementBegin
CREATE FUNCTION profile_drivers() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	DELETE FROM profile_driver WHERE profile_id = NEW.id AND driver_id <> ALL (coalesce(NEW.driver_ids, '{}'));
	INSERT INTO profile_driver SELECT NEW.id, unnest(NEW.driver_ids) ON CONFLICT DO NOTHING;
	RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER profile_drivers AFTER INSERT OR UPDATE OF driver_ids ON profile FOR EACH ROW EXECUTE FUNCTION profile_drivers();

DROP VIEW profile_view;
CREATE VIEW profile_view AS
SELECT p.id, p.version, p.name, p.billing_id, p.access_client, p.boot_script_id, b.name AS boot_script_name, p.preseed_id, s.name AS preseed_name,
	p.email_template_id, r.name AS email_template_name, coalesce(p.shell_after, '{}') AS shell_after, coalesce(p.shell_during, '{}') AS shell_during,
	coalesce(p.driver_ids, '{}') AS driver_ids, (SELECT coalesce(jsonb_agg(jsonb_build_object('id', d.id, 'name', d.name) ORDER BY d.id), '[]') FROM driver d WHERE d.id = ANY (p.driver_ids)) AS drivers,
	p.time_until_marked_failed, p.search
FROM profile p
JOIN boot_script b ON b.id = p.boot_script_id
LEFT JOIN preseed s ON s.id = p.preseed_id
LEFT JOIN ref r ON r.type = p.email_template_type AND r.id = p.email_template_id;
