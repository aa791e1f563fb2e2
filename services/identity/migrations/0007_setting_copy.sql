-- +goose Up
-- The settings as the system service last told them.
CREATE TABLE setting_copy (
	one    boolean PRIMARY KEY DEFAULT true CHECK (one),
	values jsonb NOT NULL
);
