-- +goose Up
INSERT INTO setting (id, group_id, slug, name, type, validator, default_value) VALUES
	(16, 3, 'limits.client_emails', 'Accounts made, addresses changed and mails sent an hour by a client, with all that it has created', 'Text', 'integer|min:1|max:100000', '60');
