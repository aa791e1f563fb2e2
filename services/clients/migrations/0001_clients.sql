-- +goose Up
-- A constraint that a caller can run into is named <table>__<member of the body>.

CREATE TABLE client (
	id                  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version             bigint NOT NULL DEFAULT 1,
	email               text NOT NULL,
	first               text NOT NULL,
	last                text NOT NULL,
	name                text NOT NULL GENERATED ALWAYS AS (first || ' ' || last) STORED,
	password_hash       text, -- PHC string; NULL: no login by password
	billing_id          bigint,
	ignore_auto_suspend boolean NOT NULL DEFAULT false,
	integration_id      bigint, -- a row of ref
	require_verify      boolean NOT NULL DEFAULT false,
	disabled            boolean NOT NULL DEFAULT false,
	created_at          timestamptz NOT NULL DEFAULT now(),
	search              text NOT NULL GENERATED ALWAYS AS (E'\n' || lower(first || ' ' || last) || E'\n' || lower(last) || E'\n' || lower(email)) STORED
);
CREATE UNIQUE INDEX client__email ON client (lower(email));
CREATE UNIQUE INDEX client__billing__id ON client (billing_id, integration_id) NULLS NOT DISTINCT WHERE billing_id IS NOT NULL;
CREATE INDEX client_search ON client USING gin (search gin_trgm_ops);
CREATE INDEX client_by_name ON client (name, id);
CREATE INDEX client_by_email ON client (email, id);
CREATE INDEX client_by_created_at ON client (created_at, id);
CREATE INDEX client_by_integration ON client (integration_id, id) WHERE integration_id IS NOT NULL;
CREATE INDEX client_disabled ON client (id) WHERE disabled;

CREATE VIEW client_view AS
SELECT c.id, c.version, c.email, c.first, c.last, c.name, c.created_at, c.search, c.disabled,
	c.billing_id, c.billing_id AS of_billing_id, c.ignore_auto_suspend, c.ignore_auto_suspend AS of_billing_ignore_auto_suspend,
	c.integration_id, CASE WHEN c.integration_id IS NOT NULL THEN coalesce(r.name, '') END AS integration_name, c.password_hash,
	c.require_verify, jsonb_build_array(jsonb_build_object('require', c.require_verify)) AS verify
FROM client c LEFT JOIN ref r ON r.type = 'integration' AND r.id = c.integration_id;
