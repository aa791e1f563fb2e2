-- +goose Up
-- Since when an account is its own: who created it writes it no more. NULL: it is not yet.
ALTER TABLE client ADD COLUMN claimed_at timestamptz;

CREATE OR REPLACE VIEW client_view AS
SELECT c.id, c.version, c.email, c.first, c.last, c.name, c.created_at, c.search, c.disabled,
	c.billing_id, c.billing_id AS of_billing_id, c.ignore_auto_suspend, c.ignore_auto_suspend AS of_billing_ignore_auto_suspend,
	c.integration_id, CASE WHEN c.integration_id IS NOT NULL THEN coalesce(r.name, '') END AS integration_name, c.password_hash,
	c.require_verify, jsonb_build_array(jsonb_build_object('require', c.require_verify)) AS verify, c.claimed_at
FROM client c LEFT JOIN ref r ON r.type = 'integration' AND r.id = c.integration_id;

CREATE OR REPLACE VIEW client_seen AS
SELECT 0::bigint AS viewer, true AS listed, id, version, email, first, last, name, created_at, search, disabled, billing_id, of_billing_id,
	of_billing_ignore_auto_suspend, integration_id, integration_name, require_verify, verify, claimed_at FROM client_view
UNION ALL
SELECT r.viewer, r.listed, c.id, c.version, c.email, c.first, c.last, c.name, c.created_at, c.search, c.disabled, c.billing_id, c.of_billing_id,
	c.of_billing_ignore_auto_suspend, c.integration_id, c.integration_name, c.require_verify, c.verify, c.claimed_at
FROM client_reached r JOIN client_view c ON c.id = r.id
UNION ALL
SELECT l.client_id, true, l.child_id, l.version, l.email, l.first, l.last, l.first || ' ' || l.last, l.created_at,
	E'\n' || lower(l.first || ' ' || l.last) || E'\n' || lower(l.last) || E'\n' || lower(l.email), false, NULL, NULL, false, NULL, NULL, false,
	'[{"require": false}]'::jsonb, NULL
FROM sub_link l
WHERE l.kind = 'named' AND NOT EXISTS (SELECT FROM client_reached r WHERE r.viewer = l.client_id AND r.id = l.child_id);

-- What a link shows of an account changes with it.
CREATE OR REPLACE VIEW super_link_view AS
SELECT l.id, CASE WHEN l.name IS NULL THEN g.version ELSE l.version END AS version, l.client_id, l.grantee_id, coalesce(l.name, g.name) AS grantee_name, coalesce(l.name, g.name) AS name,
	l.client_id AS granter_id, c.name AS granter_name
FROM super_link l JOIN client c ON c.id = l.client_id JOIN client g ON g.id = l.grantee_id;
