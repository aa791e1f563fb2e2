-- +goose Up
-- Port speeds are told apart by name, and by billing id where they have one. Of several with the same, the first one keeps
-- it, and the others get their ids behind it.
LOCK TABLE port_speed IN SHARE ROW EXCLUSIVE MODE;
-- +goose StatementBegin
DO $$ BEGIN
	LOOP
		UPDATE port_speed p SET version = version + 1,
			name = CASE WHEN named > 1 THEN p.name || ' (' || p.id || ')' ELSE p.name END,
			billing_id = CASE WHEN billed > 1 THEN p.billing_id || ' (' || p.id || ')' ELSE p.billing_id END
		FROM (
			SELECT id, row_number() OVER (PARTITION BY name ORDER BY id) AS named,
				CASE WHEN billing_id IS NOT NULL THEN row_number() OVER (PARTITION BY billing_id ORDER BY id) END AS billed
			FROM port_speed) each
		WHERE each.id = p.id AND (named > 1 OR billed > 1);
		EXIT WHEN NOT FOUND; -- a name with an id behind it may have been there, too
	END LOOP;
END $$;
-- +goose StatementEnd
ALTER TABLE port_speed ADD CONSTRAINT port_speed__name UNIQUE (name), ADD CONSTRAINT port_speed__billing_id UNIQUE (billing_id);
