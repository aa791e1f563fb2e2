-- +goose Up
ALTER TABLE install ADD held boolean NOT NULL DEFAULT false; -- its client is suspended
