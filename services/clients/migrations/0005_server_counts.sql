-- +goose Up
-- Of how many servers the IP entities of a client are, as far as network was asked; none: of none. Apart from the client, so
-- that nobody waits who edits it.
CREATE TABLE client_server_count (
	id      bigint PRIMARY KEY REFERENCES client ON DELETE CASCADE,
	servers bigint NOT NULL
);

-- Whose are to be asked for.
CREATE TABLE client_recount (id bigint PRIMARY KEY);
INSERT INTO client_recount SELECT id FROM client;

CREATE OR REPLACE VIEW client_view AS
SELECT c.id, c.version, c.email, c.first, c.last, c.name, c.created_at, c.search, c.disabled,
	c.billing_id, c.billing_id AS of_billing_id, c.ignore_auto_suspend, c.ignore_auto_suspend AS of_billing_ignore_auto_suspend,
	c.integration_id, CASE WHEN c.integration_id IS NOT NULL THEN coalesce(r.name, '') END AS integration_name, c.password_hash,
	c.require_verify, jsonb_build_array(jsonb_build_object('require', c.require_verify)) AS verify, c.claimed_at,
	coalesce(n.servers, 0) AS servers_count
FROM client c LEFT JOIN ref r ON r.type = 'integration' AND r.id = c.integration_id LEFT JOIN client_server_count n ON n.id = c.id;

CREATE OR REPLACE VIEW client_seen AS
SELECT 0::bigint AS viewer, true AS listed, id, version, email, first, last, name, created_at, search, disabled, billing_id, of_billing_id,
	of_billing_ignore_auto_suspend, integration_id, integration_name, require_verify, verify, claimed_at, servers_count FROM client_view
UNION ALL
SELECT r.viewer, r.listed, c.id, c.version, c.email, c.first, c.last, c.name, c.created_at, c.search, c.disabled, c.billing_id, c.of_billing_id,
	c.of_billing_ignore_auto_suspend, c.integration_id, c.integration_name, c.require_verify, c.verify, c.claimed_at, c.servers_count
FROM client_reached r JOIN client_view c ON c.id = r.id
UNION ALL
SELECT l.client_id, true, l.child_id, l.version, l.email, l.first, l.last, l.first || ' ' || l.last, l.created_at,
	E'\n' || lower(l.first || ' ' || l.last) || E'\n' || lower(l.last) || E'\n' || lower(l.email), false, NULL, NULL, false, NULL, NULL, false,
	'[{"require": false}]'::jsonb, NULL, 0
FROM sub_link l
WHERE l.kind = 'named' AND NOT EXISTS (SELECT FROM client_reached r WHERE r.viewer = l.client_id AND r.id = l.child_id);

CREATE OR REPLACE VIEW sub_link_view AS
SELECT l.id, CASE WHEN l.kind = 'named' THEN l.version ELSE c.version END AS version, l.client_id, l.kind, n.name,
	l.child_id, n.name AS child_name, coalesce(l.email, c.email) AS child_email, coalesce(l.first, c.first) AS child_first, coalesce(l.last, c.last) AS child_last,
	CASE WHEN l.kind = 'named' THEN l.created_at ELSE c.created_at END AS child_created_at,
	CASE WHEN l.kind <> 'named' THEN c.integration_id END AS child_integration_id,
	CASE WHEN l.kind <> 'named' THEN c.integration_name END AS child_integration_name,
	l.client_id AS parent_id, p.name AS parent_name,
	CASE WHEN l.kind = 'named' THEN 0 ELSE c.servers_count END AS child_servers_count
FROM sub_link l JOIN client_view c ON c.id = l.child_id JOIN client p ON p.id = l.client_id
CROSS JOIN LATERAL (SELECT coalesce(l.first || ' ' || l.last, c.name) AS name) n;
