-- +goose Up
-- The span that made the change, as a W3C traceparent. NULL: it was not traced.
ALTER TABLE change ADD COLUMN traceparent text;
