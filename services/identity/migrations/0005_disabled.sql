-- +goose Up
-- Whose keys are refused, as if they were revoked, until it is taken back.
ALTER TABLE admin ADD COLUMN disabled boolean NOT NULL DEFAULT false;
CREATE INDEX admin_by_disabled ON admin (disabled, id);

CREATE OR REPLACE VIEW admin_view AS
SELECT id, version, username, username AS name, coalesce(email, '') AS email, receive_copies, created_at, search, disabled FROM admin;
