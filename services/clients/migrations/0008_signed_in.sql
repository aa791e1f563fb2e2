-- +goose Up
-- When an account was first signed in to, and whether it has changed its address itself and nobody has shown since that he reads what comes there.
ALTER TABLE client ADD COLUMN signed_in_at timestamptz, ADD COLUMN unproven boolean NOT NULL DEFAULT false;
