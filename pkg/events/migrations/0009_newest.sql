-- +goose Up
-- The source's last change, as it was when the consumer stopped: nobody is told to skip what is not there yet.
ALTER TABLE change_cursor ADD newest bigint;
