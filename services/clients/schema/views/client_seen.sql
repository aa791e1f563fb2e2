-- What a client reaches are accounts that exist. An outer join says the same, and the planner leaves it out where only ids
-- are asked for, so that the page of a list is found in an index alone.
CREATE OR REPLACE VIEW client_seen AS
SELECT 0::bigint AS viewer, true AS listed, id, version, email, first, last, name, created_at, search, disabled, billing_id, of_billing_id,
	of_billing_ignore_auto_suspend, integration_id, integration_name, require_verify, verify, claimed_at, servers_count, suspended_by, suspended, language
FROM client_view
UNION ALL
SELECT r.viewer, r.listed, r.id, c.version, c.email, c.first, c.last, r.name, c.created_at, r.search, c.disabled, c.billing_id, c.of_billing_id,
	c.of_billing_ignore_auto_suspend, c.integration_id, c.integration_name, c.require_verify, c.verify, c.claimed_at, c.servers_count,
	c.suspended_by, c.suspended, c.language
FROM client_reached r LEFT JOIN client_view c ON c.id = r.id
UNION ALL
SELECT l.client_id, true, l.child_id, l.version, l.email, l.first, l.last, l.first || ' ' || l.last, l.created_at,
	E'\n' || lower(l.first || ' ' || l.last) || E'\n' || lower(l.last) || E'\n' || lower(l.email), false, NULL, NULL, false, NULL, NULL, false,
	'[{"require": false}]'::jsonb, NULL::timestamptz, 0::bigint, '{}'::text[], false, NULL::text
FROM sub_link l
WHERE l.kind = 'named' AND NOT EXISTS (SELECT FROM client_reached r WHERE r.viewer = l.client_id AND r.id = l.child_id);
