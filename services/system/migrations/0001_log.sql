-- +goose Up
-- What anybody changed, one row for each change, written by the one who holds log_head. Each row's mac signs the row and
-- the mac of the row before it, so none can be altered, removed or put in between. What is signed is kept byte for byte.
CREATE TABLE log (
	id          bigint PRIMARY KEY, -- the place in the chain, without gaps
	at          timestamptz NOT NULL,
	source      text NOT NULL, -- the service that was changed
	seq         bigint NOT NULL, -- the change's number there
	type        text NOT NULL,
	description text NOT NULL,
	user_url    text, -- NULL: the installation itself
	user_name   text,
	user_key    bigint,
	ip          text,
	request_id  text,
	targets     json NOT NULL,
	changes     json NOT NULL, -- by member: before and after
	mac         bytea NOT NULL,
	UNIQUE (source, seq)
);

CREATE INDEX log_by_at ON log (at, id);
CREATE INDEX log_by_user ON log (user_url, at, id);
CREATE INDEX log_by_type ON log (type, at, id);

-- The targets of the rows of log, to find them by.
CREATE TABLE log_target (
	type      text NOT NULL,
	target_id bigint NOT NULL,
	at        timestamptz NOT NULL,
	log_id    bigint NOT NULL,
	PRIMARY KEY (type, target_id, at, log_id)
);

CREATE INDEX log_target_by_log ON log_target (log_id);

-- Where the log ends, so that nothing can be cut off there.
CREATE TABLE log_head (
	one       boolean PRIMARY KEY DEFAULT true CHECK (one),
	id        bigint NOT NULL, -- 0: there was nothing yet
	mac       bytea NOT NULL, -- the row's
	signature bytea NOT NULL
);

INSERT INTO log_head (id, mac, signature) VALUES (0, '', '');

-- Up to where the log has been cut, because it was old.
CREATE TABLE log_checkpoint (
	id        bigint PRIMARY KEY, -- of the last row that was cut
	mac       bytea NOT NULL, -- the row's
	at        timestamptz NOT NULL,
	signature bytea NOT NULL
);

CREATE VIEW log_view AS
SELECT id, at AS created_at, coalesce(ip, '') AS ip, type, description AS "desc",
	substring(user_url FROM '[0-9]+$')::bigint AS user_id, user_name, user_url, targets
FROM log;

CREATE VIEW log_item_view AS
SELECT v.*, v."desc" AS data_description, l.changes AS data_changes FROM log_view v JOIN log l USING (id);

CREATE VIEW log_by_target AS
SELECT t.log_id AS id, t.at AS created_at, t.type AS target_type, t.target_id, l.type, l.user_url
FROM log_target t LEFT JOIN log l ON l.id = t.log_id;
