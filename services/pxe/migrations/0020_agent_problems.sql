-- +goose Up
ALTER TABLE site_agent ADD problems text[] NOT NULL DEFAULT '{}'; -- why the agent says that it cannot work
