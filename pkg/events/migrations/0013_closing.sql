-- +goose Up
-- Items that are being deleted, of which other services are asked whether they refer to them.
CREATE SEQUENCE closing_token;
CREATE TABLE closing (
	type   text NOT NULL,
	id     bigint NOT NULL,
	token  bigint NOT NULL DEFAULT nextval('closing_token'),
	agreed boolean NOT NULL DEFAULT false, -- nobody refers to it, and nobody will
	until  timestamptz NOT NULL,           -- then whoever asks ends it
	PRIMARY KEY (type, id)
);

-- The token of the last deletion that the owner asked about; NULL: none that may be under way.
ALTER TABLE ref ADD COLUMN closing bigint;
