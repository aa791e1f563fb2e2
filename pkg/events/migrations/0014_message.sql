-- +goose Up
-- What other services are to do. A row goes when its receiver has taken it.
CREATE TABLE message (
	n          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	id         uuid NOT NULL DEFAULT gen_random_uuid(),
	receiver   text NOT NULL,
	kind       text NOT NULL,
	content    jsonb NOT NULL,
	sealed     bytea, -- the secret that belongs to it, for the receiver
	request_id text,
	at         timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX message_by_receiver ON message (receiver, n);

-- What was taken of others' messages: none is taken twice.
CREATE TABLE message_taken (
	id uuid PRIMARY KEY,
	at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX message_taken_by_at ON message_taken (at);
