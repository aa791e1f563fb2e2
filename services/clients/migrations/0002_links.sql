-- +goose Up
-- client_id may give its servers to child_id. created and given links are whole: they show the account and what it reaches.
-- One that a client named by its address shows what he gave with it, and nothing of the account.
CREATE TABLE sub_link (
	id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version    bigint NOT NULL DEFAULT 1,
	client_id  bigint NOT NULL REFERENCES client ON DELETE CASCADE,
	child_id   bigint NOT NULL REFERENCES client ON DELETE CASCADE,
	kind       text NOT NULL CHECK (kind IN ('created', 'given', 'named')),
	email      text,
	first      text,
	last       text,
	created_at timestamptz NOT NULL DEFAULT now(),
	UNIQUE (client_id, child_id),
	CHECK (client_id <> child_id),
	CHECK (num_nonnulls(email, first, last) = CASE kind WHEN 'named' THEN 3 ELSE 0 END)
);
CREATE INDEX sub_link_by_client ON sub_link (client_id, id);
CREATE INDEX sub_link_by_child ON sub_link (child_id, id);

-- client_id lets grantee_id read its record and the accounts that it reaches.
CREATE TABLE super_link (
	id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version    bigint NOT NULL DEFAULT 1,
	client_id  bigint NOT NULL REFERENCES client ON DELETE CASCADE,
	grantee_id bigint NOT NULL REFERENCES client ON DELETE CASCADE,
	given      boolean NOT NULL, -- by who holds users.clients
	name       text,             -- of the grantee, as client_id knows it; NULL: the account's
	created_at timestamptz NOT NULL DEFAULT now(),
	UNIQUE (client_id, grantee_id),
	CHECK (client_id <> grantee_id)
);
CREATE INDEX super_link_by_client ON super_link (client_id, id);
CREATE INDEX super_link_by_grantee ON super_link (grantee_id, id);

-- Along how many ways of whole links each client reaches which others. Who writes sub links holds the lock of all of them,
-- and has looked that there is no cycle.
CREATE TABLE client_reach (
	ancestor   bigint NOT NULL,
	descendant bigint NOT NULL,
	ways       numeric NOT NULL,
	PRIMARY KEY (ancestor, descendant)
);
CREATE INDEX client_reach_by_descendant ON client_reach (descendant, ancestor);

-- +goose StatementBegin
CREATE FUNCTION sub_link_made() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO client_reach AS r (ancestor, descendant, ways)
	SELECT a.id, d.id, a.ways * d.ways
	FROM (SELECT ancestor AS id, ways FROM client_reach WHERE descendant = NEW.client_id UNION ALL SELECT NEW.client_id, 1) a
	CROSS JOIN (SELECT descendant AS id, ways FROM client_reach WHERE ancestor = NEW.child_id UNION ALL SELECT NEW.child_id, 1) d
	ON CONFLICT (ancestor, descendant) DO UPDATE SET ways = r.ways + EXCLUDED.ways;
	RETURN NULL;
END $$;

CREATE FUNCTION sub_link_deleted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	WITH fewer AS (
		SELECT a.id AS ancestor, d.id AS descendant, a.ways * d.ways AS ways
		FROM (SELECT ancestor AS id, ways FROM client_reach WHERE descendant = OLD.client_id UNION ALL SELECT OLD.client_id, 1) a
		CROSS JOIN (SELECT descendant AS id, ways FROM client_reach WHERE ancestor = OLD.child_id UNION ALL SELECT OLD.child_id, 1) d),
	gone AS (
		DELETE FROM client_reach r USING fewer f WHERE (r.ancestor, r.descendant) = (f.ancestor, f.descendant) AND r.ways = f.ways)
	UPDATE client_reach r SET ways = r.ways - f.ways FROM fewer f WHERE (r.ancestor, r.descendant) = (f.ancestor, f.descendant) AND r.ways > f.ways;
	RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER sub_link_made AFTER INSERT ON sub_link FOR EACH ROW WHEN (NEW.kind <> 'named') EXECUTE FUNCTION sub_link_made();
CREATE TRIGGER sub_link_deleted AFTER DELETE ON sub_link FOR EACH ROW WHEN (OLD.kind <> 'named') EXECUTE FUNCTION sub_link_deleted();

-- Which accounts a client reads whole, each once: its own, what it reaches, those whose grantee it is, and what these reach.
CREATE VIEW client_reached AS
SELECT id AS viewer, id, false AS listed FROM client
UNION ALL
SELECT ancestor, descendant, true FROM client_reach
UNION ALL
SELECT s.grantee_id, s.client_id, false FROM super_link s
WHERE NOT EXISTS (SELECT FROM client_reach r WHERE r.ancestor = s.grantee_id AND r.descendant = s.client_id)
UNION ALL
SELECT s.grantee_id, r.descendant, true FROM super_link s JOIN client_reach r ON r.ancestor = s.client_id
WHERE r.descendant <> s.grantee_id
	AND NOT EXISTS (SELECT FROM client_reach o WHERE o.ancestor = s.grantee_id AND o.descendant = r.descendant)
	AND NOT EXISTS (SELECT FROM super_link o WHERE o.grantee_id = s.grantee_id AND o.client_id = r.descendant)
	AND NOT EXISTS (SELECT FROM super_link o JOIN client_reach q ON q.ancestor = o.client_id AND q.descendant = r.descendant
		WHERE o.grantee_id = s.grantee_id AND o.client_id < s.client_id);

-- What each viewer sees of which client: 0 is who holds users.clients. Of what a client named it sees what it gave.
CREATE VIEW client_seen AS
SELECT 0::bigint AS viewer, true AS listed, id, version, email, first, last, name, created_at, search, disabled, billing_id, of_billing_id,
	of_billing_ignore_auto_suspend, integration_id, integration_name, require_verify, verify FROM client_view
UNION ALL
SELECT r.viewer, r.listed, c.id, c.version, c.email, c.first, c.last, c.name, c.created_at, c.search, c.disabled, c.billing_id, c.of_billing_id,
	c.of_billing_ignore_auto_suspend, c.integration_id, c.integration_name, c.require_verify, c.verify
FROM client_reached r JOIN client_view c ON c.id = r.id
UNION ALL
SELECT l.client_id, true, l.child_id, l.version, l.email, l.first, l.last, l.first || ' ' || l.last, l.created_at,
	E'\n' || lower(l.first || ' ' || l.last) || E'\n' || lower(l.last) || E'\n' || lower(l.email), false, NULL, NULL, false, NULL, NULL, false,
	'[{"require": false}]'::jsonb
FROM sub_link l
WHERE l.kind = 'named' AND NOT EXISTS (SELECT FROM client_reached r WHERE r.viewer = l.client_id AND r.id = l.child_id);

CREATE VIEW sub_link_view AS
SELECT l.id, CASE WHEN l.kind = 'named' THEN l.version ELSE c.version END AS version, l.client_id, l.kind, n.name,
	l.child_id, n.name AS child_name, coalesce(l.email, c.email) AS child_email, coalesce(l.first, c.first) AS child_first, coalesce(l.last, c.last) AS child_last,
	CASE WHEN l.kind = 'named' THEN l.created_at ELSE c.created_at END AS child_created_at,
	CASE WHEN l.kind <> 'named' THEN c.integration_id END AS child_integration_id,
	CASE WHEN l.kind <> 'named' THEN c.integration_name END AS child_integration_name,
	l.client_id AS parent_id, p.name AS parent_name
FROM sub_link l JOIN client_view c ON c.id = l.child_id JOIN client p ON p.id = l.client_id
CROSS JOIN LATERAL (SELECT coalesce(l.first || ' ' || l.last, c.name) AS name) n;

CREATE VIEW super_link_view AS
SELECT l.id, l.version, l.client_id, l.grantee_id, coalesce(l.name, g.name) AS grantee_name, coalesce(l.name, g.name) AS name,
	l.client_id AS granter_id, c.name AS granter_name
FROM super_link l JOIN client c ON c.id = l.client_id JOIN client g ON g.id = l.grantee_id;
