-- +goose Up
-- What units of work lock, made on demand.
CREATE TABLE lock (
	name   text,
	number bigint,
	PRIMARY KEY (name, number)
);
