-- +goose Up
-- The span that sent the message, as a W3C traceparent. NULL: it was not traced.
ALTER TABLE message ADD COLUMN traceparent text;
