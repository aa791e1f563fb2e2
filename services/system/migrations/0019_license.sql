-- +goose Up
-- One row: the license as it was read last.
CREATE TABLE license (
	id           bigint PRIMARY KEY CHECK (id = 1),
	version      bigint NOT NULL DEFAULT 1,
	text         text NOT NULL DEFAULT '',
	refreshed_at timestamptz
);

INSERT INTO license (id) VALUES (1);
