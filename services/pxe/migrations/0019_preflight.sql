-- +goose Up
ALTER TABLE site_agent ADD dhcp jsonb; -- what the agent offers to machines that boot; null: it is of an earlier version
ALTER TABLE install ADD forced text[] NOT NULL DEFAULT '{}'; -- codes of the reasons that the caller passed over
