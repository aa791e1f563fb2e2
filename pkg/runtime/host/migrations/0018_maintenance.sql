-- +goose Up
-- Whether operators have stopped changes. All services have the same row, so that each knows the state without the others.
CREATE TABLE maintenance (
	one    boolean PRIMARY KEY DEFAULT true CHECK (one),
	active boolean NOT NULL,
	since  timestamptz NOT NULL, -- it is active, or is not
	reason text NOT NULL         -- for callers; empty if it is not active
);
