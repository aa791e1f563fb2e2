-- +goose Up
-- The span of the change or the request that is the cause, as a W3C traceparent. NULL: it was not traced.
ALTER TABLE webhook_delivery ADD COLUMN traceparent text;
