-- +goose Up
CREATE INDEX email_message_by_account ON email_message (account, created_at);
