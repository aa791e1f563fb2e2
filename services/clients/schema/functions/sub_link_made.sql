CREATE OR REPLACE FUNCTION sub_link_made() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO client_reach AS r (ancestor, descendant, ways, name, search)
	SELECT a.id, d.id, a.ways * d.ways, d.name, d.search
	FROM (SELECT ancestor AS id, ways FROM client_reach WHERE descendant = NEW.client_id UNION ALL SELECT NEW.client_id, 1) a
	CROSS JOIN (SELECT descendant AS id, ways, name, search FROM client_reach WHERE ancestor = NEW.child_id
		UNION ALL SELECT id, 1, name, search FROM client WHERE id = NEW.child_id) d
	ON CONFLICT (ancestor, descendant) DO UPDATE SET ways = r.ways + EXCLUDED.ways;
	RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER sub_link_made AFTER INSERT ON sub_link FOR EACH ROW WHEN (NEW.kind <> 'named') EXECUTE FUNCTION sub_link_made();
