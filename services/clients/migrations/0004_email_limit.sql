-- +goose Up
-- Who created the account, and who created that one, and so on, up to the first: they count as one. It stays where the link
-- by which it was created goes, or the account that created it. NULL: nobody among the clients did.
ALTER TABLE client ADD COLUMN root_id bigint;

WITH RECURSIVE created AS (
	SELECT child_id AS id, client_id AS root_id FROM sub_link l
	WHERE kind = 'created' AND NOT EXISTS (SELECT FROM sub_link u WHERE u.child_id = l.client_id AND u.kind = 'created')
	UNION ALL SELECT l.child_id, c.root_id FROM created c JOIN sub_link l ON l.client_id = c.id AND l.kind = 'created')
UPDATE client SET root_id = created.root_id FROM created WHERE created.id = client.id;

-- When a client did what says something of the addresses of others. What is older than an hour is forgotten.
CREATE TABLE email_use (
	root_id bigint NOT NULL,
	at      timestamptz NOT NULL
);
CREATE INDEX email_use_by_root ON email_use (root_id, at);
