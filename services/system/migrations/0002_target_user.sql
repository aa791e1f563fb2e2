-- +goose Up
-- What somebody did to one thing is found by an index, too: each target has its item's user.
ALTER TABLE log_target ADD user_url text;
UPDATE log_target t SET user_url = l.user_url FROM log l WHERE l.id = t.log_id AND l.user_url IS NOT NULL;
CREATE INDEX log_target_by_user ON log_target (type, target_id, user_url, at, log_id);

-- An instance of the version before does not say it.
-- +goose StatementBegin
CREATE FUNCTION log_target_user() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	SELECT user_url INTO NEW.user_url FROM log WHERE id = NEW.log_id;
	RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER log_target_user BEFORE INSERT ON log_target FOR EACH ROW WHEN (NEW.user_url IS NULL) EXECUTE FUNCTION log_target_user();

CREATE OR REPLACE VIEW log_by_target AS
SELECT t.log_id AS id, t.at AS created_at, t.type AS target_type, t.target_id, l.type, t.user_url
FROM log_target t LEFT JOIN log l ON l.id = t.log_id;
