CREATE OR REPLACE FUNCTION sub_link_deleted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	WITH fewer AS (
		SELECT a.id AS ancestor, d.id AS descendant, a.ways * d.ways AS ways
		FROM (SELECT ancestor AS id, ways FROM client_reach WHERE descendant = OLD.client_id UNION ALL SELECT OLD.client_id, 1) a
		CROSS JOIN (SELECT descendant AS id, ways FROM client_reach WHERE ancestor = OLD.child_id UNION ALL SELECT OLD.child_id, 1) d),
	gone AS (
		DELETE FROM client_reach r USING fewer f WHERE (r.ancestor, r.descendant) = (f.ancestor, f.descendant) AND r.ways = f.ways)
	UPDATE client_reach r SET ways = r.ways - f.ways FROM fewer f WHERE (r.ancestor, r.descendant) = (f.ancestor, f.descendant) AND r.ways > f.ways;
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER sub_link_deleted AFTER DELETE ON sub_link FOR EACH ROW WHEN (OLD.kind <> 'named') EXECUTE FUNCTION sub_link_deleted();
