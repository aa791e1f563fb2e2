-- +goose Up
-- Items that are signed with an older master key, countersigned with a newer one, so that the older need not be kept. The
-- digest (SHA-256) is of what their macs sign, and of the macs.
CREATE TABLE log_countersigned (
	first     bigint PRIMARY KEY,
	last      bigint NOT NULL CHECK (last >= first),
	digest    bytea NOT NULL,
	signature bytea NOT NULL
);
