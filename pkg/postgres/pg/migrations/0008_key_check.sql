-- +goose Up
-- Something that is sealed with the installation's key, so that another key is found out before anything is sealed with it.
CREATE TABLE key_check (
	one    boolean PRIMARY KEY DEFAULT true CHECK (one),
	sealed bytea NOT NULL
);
