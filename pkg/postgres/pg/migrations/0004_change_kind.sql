-- +goose Up
-- What was changed, which part of it, and what was done, so that nobody takes the type apart. NULL: an older program
-- wrote it.
ALTER TABLE change ADD kind text, ADD part text, ADD action text;
