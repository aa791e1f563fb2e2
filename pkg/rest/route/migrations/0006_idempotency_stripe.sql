-- +goose Up
-- A request that may be repeated locks the row that its id is hashed to. Few enough are under way at once that they
-- hardly ever share one.
CREATE TABLE idempotency_stripe (number smallint PRIMARY KEY);
INSERT INTO idempotency_stripe SELECT generate_series(0, 1023);
