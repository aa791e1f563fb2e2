-- +goose Up
-- What the store has; package store writes it.
CREATE TABLE stored_file (
	id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	path       text COLLATE "C" CONSTRAINT stored_file__path UNIQUE, -- where file servers have it
	size       bigint NOT NULL DEFAULT 0,
	sha256     text, -- in hexadecimal, once it is whole
	hash       bytea, -- how far it is hashed, until then
	expires_at timestamptz, -- of one that nobody refers to yet
	CHECK (path IS NULL OR sha256 IS NOT NULL)
);
CREATE INDEX stored_file_by_expiry ON stored_file (expires_at);

-- A file is the pieces one behind the other, of which each lies in a blob of the bucket.
CREATE TABLE stored_piece (
	file_id bigint REFERENCES stored_file ON DELETE CASCADE,
	start   bigint,          -- in the file
	size    bigint NOT NULL,
	blob    text NOT NULL,
	skip    bigint NOT NULL, -- in the blob, before the piece
	PRIMARY KEY (file_id, start)
);
CREATE INDEX stored_piece_by_blob ON stored_piece (blob);

-- What the names of the installation's blobs begin with, so that several can have one bucket.
CREATE TABLE stored_prefix (prefix text NOT NULL);
INSERT INTO stored_prefix SELECT gen_random_uuid() || '/';
