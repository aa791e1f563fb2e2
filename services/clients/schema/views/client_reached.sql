-- Which accounts a client reads whole, each once: its own, what it reaches, those whose grantee it is, and what these reach.
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
