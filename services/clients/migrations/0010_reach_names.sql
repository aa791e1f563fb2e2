-- +goose Up
-- By which the accounts that a client reaches are sorted and searched, so that these are found without a row of each.
ALTER TABLE client_reach ADD COLUMN name text, ADD COLUMN search text;
UPDATE client_reach r SET name = c.name, search = c.search FROM client c WHERE c.id = r.descendant;
ALTER TABLE client_reach ALTER COLUMN name SET NOT NULL, ALTER COLUMN search SET NOT NULL;

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION sub_link_made() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO client_reach AS r (ancestor, descendant, ways, name, search)
	SELECT a.id, d.id, a.ways * d.ways, d.name, d.search
	FROM (SELECT ancestor AS id, ways FROM client_reach WHERE descendant = NEW.client_id UNION ALL SELECT NEW.client_id, 1) a
	CROSS JOIN (SELECT descendant AS id, ways, name, search FROM client_reach WHERE ancestor = NEW.child_id
		UNION ALL SELECT id, 1, name, search FROM client WHERE id = NEW.child_id) d
	ON CONFLICT (ancestor, descendant) DO UPDATE SET ways = r.ways + EXCLUDED.ways;
	RETURN NULL;
END $$;

-- What is copied here is not being linked meanwhile.
CREATE FUNCTION client_renamed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO lock (name, number) VALUES ('sub links', 0) ON CONFLICT DO NOTHING;
	PERFORM FROM lock WHERE name = 'sub links' AND number = 0 FOR UPDATE;
	UPDATE client_reach SET name = NEW.name, search = NEW.search WHERE descendant = NEW.id;
	RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER client_renamed AFTER UPDATE ON client FOR EACH ROW WHEN (NEW.name <> OLD.name OR NEW.search <> OLD.search) EXECUTE FUNCTION client_renamed();

CREATE OR REPLACE VIEW client_reached AS
SELECT id AS viewer, id, false AS listed, name, search FROM client
UNION ALL
SELECT ancestor, descendant, true, name, search FROM client_reach
UNION ALL
SELECT s.grantee_id, s.client_id, false, c.name, c.search FROM super_link s LEFT JOIN client c ON c.id = s.client_id
WHERE NOT EXISTS (SELECT FROM client_reach r WHERE r.ancestor = s.grantee_id AND r.descendant = s.client_id)
UNION ALL
SELECT s.grantee_id, r.descendant, true, r.name, r.search FROM super_link s JOIN client_reach r ON r.ancestor = s.client_id
WHERE r.descendant <> s.grantee_id
	AND NOT EXISTS (SELECT FROM client_reach o WHERE o.ancestor = s.grantee_id AND o.descendant = r.descendant)
	AND NOT EXISTS (SELECT FROM super_link o WHERE o.grantee_id = s.grantee_id AND o.client_id = r.descendant)
	AND NOT EXISTS (SELECT FROM super_link o JOIN client_reach q ON q.ancestor = o.client_id AND q.descendant = r.descendant
		WHERE o.grantee_id = s.grantee_id AND o.client_id < s.client_id);

CREATE OR REPLACE VIEW client_seen AS
SELECT 0::bigint AS viewer, true AS listed, id, version, email, first, last, name, created_at, search, disabled, billing_id, of_billing_id,
	of_billing_ignore_auto_suspend, integration_id, integration_name, require_verify, verify, claimed_at, servers_count FROM client_view
UNION ALL
SELECT r.viewer, r.listed, r.id, c.version, c.email, c.first, c.last, r.name, c.created_at, r.search, c.disabled, c.billing_id, c.of_billing_id,
	c.of_billing_ignore_auto_suspend, c.integration_id, c.integration_name, c.require_verify, c.verify, c.claimed_at, c.servers_count
FROM client_reached r LEFT JOIN client_view c ON c.id = r.id
UNION ALL
SELECT l.client_id, true, l.child_id, l.version, l.email, l.first, l.last, l.first || ' ' || l.last, l.created_at,
	E'\n' || lower(l.first || ' ' || l.last) || E'\n' || lower(l.last) || E'\n' || lower(l.email), false, NULL, NULL, false, NULL, NULL, false,
	'[{"require": false}]'::jsonb, NULL::timestamptz, 0::bigint
FROM sub_link l
WHERE l.kind = 'named' AND NOT EXISTS (SELECT FROM client_reached r WHERE r.viewer = l.client_id AND r.id = l.child_id);
