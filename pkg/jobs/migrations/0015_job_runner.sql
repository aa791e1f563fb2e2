-- +goose Up
-- Processes that do jobs. Those of one that has not been seen for a while are begun again by another one.
CREATE TABLE job_runner (
	id    text PRIMARY KEY,
	since timestamptz NOT NULL DEFAULT now(), -- it has been seen all the time
	seen  timestamptz NOT NULL DEFAULT now()
);
