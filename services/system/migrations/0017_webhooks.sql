-- +goose Up
CREATE TABLE webhook (
	id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version          bigint NOT NULL DEFAULT 1,
	name             text NOT NULL,
	url              text NOT NULL,
	types            text[] NOT NULL,
	enabled          boolean NOT NULL,
	owner_url        text NOT NULL, -- whose rights it has: who made it
	secret           bytea,
	old_secret       bytea, -- by which it is signed, too
	old_secret_until timestamptz,
	created_at       timestamptz NOT NULL DEFAULT now(),
	search           text NOT NULL GENERATED ALWAYS AS (E'\n' || lower(name) || E'\n' || lower(url)) STORED,
	-- What comes of its deliveries, and is no edit.
	resting          text, -- why nothing is delivered
	failures         integer NOT NULL DEFAULT 0, -- rounds in a row in which nothing could be delivered
	paused_until     timestamptz
);
CREATE INDEX webhook_search ON webhook USING gin (search gin_trgm_ops);
CREATE INDEX webhook_by_name ON webhook (name, id);
CREATE INDEX webhook_by_owner ON webhook (owner_url, id);

CREATE VIEW webhook_view AS
	SELECT id, version, name, url, types, enabled, owner_url, split_part(owner_url, '/', 3)::bigint AS owner_id, split_part(owner_url, '/', 2) AS owner_type,
		CASE WHEN old_secret IS NOT NULL AND old_secret_until > now() THEN old_secret_until END AS old_secret_until, created_at, search,
		CASE WHEN NOT enabled THEN coalesce(resting, 'it is disabled') WHEN paused_until > now() THEN resting END AS resting
	FROM webhook;

-- What is delivered, to one webhook or to several.
CREATE TABLE webhook_event (
	id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	uuid    text NOT NULL, -- webhook-id
	type    text NOT NULL,
	at      timestamptz NOT NULL,
	payload text NOT NULL
);

CREATE TABLE webhook_delivery (
	id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	webhook_id    bigint NOT NULL, -- those of one that is deleted go a little later
	event_id      bigint NOT NULL REFERENCES webhook_event,
	item          text NOT NULL, -- of which deliveries go in order
	cause         text NOT NULL CHECK (cause IN ('event', 'replay', 'test')),
	status        text NOT NULL DEFAULT 'waiting' CHECK (status IN ('waiting', 'delivered', 'failed')),
	attempts      integer NOT NULL DEFAULT 0,
	next_at       timestamptz, -- infinity: an earlier one of the item waits
	created_at    timestamptz NOT NULL DEFAULT now(),
	tried_at      timestamptz,
	duration      integer, -- of the last attempt, in ms
	answer_status integer,
	answer        text,
	error         text,
	CHECK ((status = 'waiting') = (next_at IS NOT NULL))
);
CREATE INDEX webhook_delivery_due ON webhook_delivery (webhook_id, next_at) WHERE status = 'waiting';
CREATE INDEX webhook_delivery_item ON webhook_delivery (webhook_id, item, id) WHERE status = 'waiting';
CREATE INDEX webhook_delivery_by_created_at ON webhook_delivery (webhook_id, created_at, id);
CREATE INDEX webhook_delivery_by_status ON webhook_delivery (webhook_id, status, created_at, id);
CREATE INDEX webhook_delivery_by_age ON webhook_delivery (created_at);
CREATE INDEX webhook_delivery_by_event ON webhook_delivery (event_id);

CREATE VIEW webhook_delivery_view AS
	SELECT d.id, webhook_id, e.uuid AS event, e.type, cause, status, attempts, nullif(next_at, 'infinity') AS next_at, created_at, tried_at, duration, answer_status, answer, error, e.payload
	FROM webhook_delivery d JOIN webhook_event e ON e.id = event_id;

INSERT INTO setting_group (id, name) SELECT max(id) + 1, 'Webhooks' FROM setting_group;
INSERT INTO setting (id, group_id, slug, name, type, validator, default_value)
	SELECT max(id) + 1, (SELECT id FROM setting_group WHERE name = 'Webhooks'), 'webhook.days', 'Days that deliveries to webhooks are kept which ended', 'Text', 'integer|min:1|max:365', '14' FROM setting;
