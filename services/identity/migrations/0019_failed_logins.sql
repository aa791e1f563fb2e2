-- +goose Up
-- Failed logins by account and kind, so that its owner gets a mail about them. A mail begins another day.
CREATE TABLE failed_login (
	owner_type text NOT NULL,
	owner_id   bigint NOT NULL,
	kind       text NOT NULL CHECK (kind IN ('password', 'code')), -- what was wrong
	count      bigint NOT NULL DEFAULT 1,
	since      timestamptz NOT NULL DEFAULT now(), -- when counting began, or when the owner got a mail
	PRIMARY KEY (owner_type, owner_id, kind)
);
CREATE INDEX failed_login_since ON failed_login (since);
