-- +goose Up
CREATE TABLE verify_method (
	id          bigint PRIMARY KEY,
	version     bigint NOT NULL DEFAULT 1,
	name        text NOT NULL CONSTRAINT verify_method__name UNIQUE CHECK (name <> ''),
	description text
);

INSERT INTO verify_method (id, name, description) VALUES
	(1, 'totp', 'An app that shows a new code every 30 seconds'),
	(2, 'email', 'A code by mail');
