-- +goose Up
-- Mails, with a mark in the place of secrets.
CREATE TABLE email_message (
	id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version    bigint NOT NULL DEFAULT 1,
	uuid       uuid NOT NULL DEFAULT gen_random_uuid(), -- the beginning of its Message-ID
	template   text NOT NULL,
	account    text NOT NULL, -- whose it is: /client/5
	to_name    text NOT NULL,
	to_email   text NOT NULL,
	subject    text NOT NULL DEFAULT '',
	body       text NOT NULL DEFAULT '',
	html       text NOT NULL DEFAULT '',
	secret     boolean NOT NULL, -- whether it holds one
	sealed     bytea, -- what is sent, where that is not what stands here; NULL: it is not needed any more
	status     text NOT NULL CHECK (status IN ('held', 'queued', 'sent', 'failed')),
	error      text,
	attempts   integer NOT NULL DEFAULT 0,
	created_at timestamptz NOT NULL DEFAULT now(),
	sent_at    timestamptz,
	expires_at timestamptz -- it is not sent later
);
CREATE INDEX email_message_by_created_at ON email_message (created_at, id);
CREATE INDEX email_message_by_status ON email_message (status, id);
CREATE INDEX email_message_by_to ON email_message (lower(to_email), id);
CREATE INDEX email_message_by_template ON email_message (template, id);

INSERT INTO setting_group (id, name) VALUES (5, 'Email');
INSERT INTO setting (id, group_id, slug, name, type, validator, default_value) VALUES
	(15, 5, 'email.days', 'Days that mails are kept which were sent or failed', 'Text', 'integer|min:1|max:3650', '30');

INSERT INTO todo (slug, done_by) VALUES ('system.email.configure', 'email.message.sent');
