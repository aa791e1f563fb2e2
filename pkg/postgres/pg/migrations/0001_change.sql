-- +goose Up
-- One row for each unit of work that changed something, written in its own transaction.
CREATE TABLE change (
	id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	at         timestamptz NOT NULL DEFAULT now(),
	type       text NOT NULL,
	targets    jsonb NOT NULL,
	before     jsonb,
	after      jsonb,
	actor_url  text, -- NULL: the installation itself
	actor_name text,
	actor_key  bigint,
	ip         inet,
	request_id text
);
