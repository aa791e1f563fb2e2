-- +goose Up
ALTER TABLE client ADD language text; -- of mails to the client
