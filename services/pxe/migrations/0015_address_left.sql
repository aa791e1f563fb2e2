-- +goose Up
ALTER TABLE install ADD address_left boolean NOT NULL DEFAULT false; -- since it has ended its IP entity is somebody else's, or has another address
