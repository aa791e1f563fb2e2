-- +goose Up
-- A driver's file that is sent in several requests. It is a file of the store, which expires where nothing is made of it.
CREATE TABLE driver_upload (
	id         text COLLATE "C" PRIMARY KEY, -- that nobody guesses
	owner      text NOT NULL,                -- of the key that began it: /admin/3
	size       bigint NOT NULL,              -- in the end
	metadata   text NOT NULL,                -- as it was sent
	file_id    bigint REFERENCES stored_file ON DELETE SET NULL,
	sha256     text,                         -- once it was named as whole
	expires_at timestamptz NOT NULL
);
CREATE INDEX driver_upload_by_file ON driver_upload (file_id);
CREATE INDEX driver_upload_by_owner ON driver_upload (owner);
CREATE INDEX driver_upload_by_expiry ON driver_upload (expires_at);
