-- +goose Up
-- What was tried with accounts by who had no proof of being their owner, and is yet to be logged.
CREATE TABLE attempt (
	id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	what       text NOT NULL CHECK (what IN ('login', 'reset')),
	owner_type text NOT NULL,
	owner_id   bigint NOT NULL, -- 0: nobody has the name
	name       text NOT NULL,
	expires_at timestamptz,     -- of a link
	caller     jsonb NOT NULL
);
