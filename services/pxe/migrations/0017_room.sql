-- +goose Up
ALTER TABLE install
	ADD leaving boolean NOT NULL DEFAULT false, -- room was taken from it, and its machine may have been given its boot script before its agent was told so
	ADD told_at timestamptz; -- when its agent was told so
