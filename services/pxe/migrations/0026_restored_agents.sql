-- +goose Up
ALTER TABLE site_agent
	ADD entry_at timestamptz, -- when the agent wrote the last entry that was read, by its clock
	ADD skip_until timestamptz; -- entries up to this time were applied before the agent's folder was restored
