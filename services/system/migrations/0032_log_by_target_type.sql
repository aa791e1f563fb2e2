-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX IF EXISTS log_target_by_type; -- an earlier try may have left half of it
CREATE INDEX CONCURRENTLY log_target_by_type ON log_target (type, at, log_id);
