-- +goose Up
-- A folder of packages keeps its id, also while it is away.
CREATE TABLE package (
	id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	folder text NOT NULL UNIQUE
);
