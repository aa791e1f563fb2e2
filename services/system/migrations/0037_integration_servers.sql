-- +goose Up
ALTER TABLE integration_count ADD servers bigint NOT NULL DEFAULT 0; -- of the integration's clients
