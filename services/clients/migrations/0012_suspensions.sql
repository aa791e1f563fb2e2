-- +goose Up
-- Who suspended a client. Each suspender lifts only its own suspension. A reseller's ends when the reseller no longer reaches the client.
CREATE TABLE suspension (
	client_id   bigint NOT NULL REFERENCES client ON DELETE CASCADE,
	kind        text NOT NULL CHECK (kind IN ('admin', 'integration', 'reseller')),
	reseller_id bigint CHECK ((reseller_id IS NOT NULL) = (kind = 'reseller')),
	created_at  timestamptz NOT NULL DEFAULT now(),
	UNIQUE NULLS NOT DISTINCT (client_id, kind, reseller_id),
	FOREIGN KEY (reseller_id, client_id) REFERENCES client_reach (ancestor, descendant) ON DELETE CASCADE
);
CREATE INDEX suspension_by_reseller ON suspension (reseller_id, client_id) WHERE reseller_id IS NOT NULL;

-- It is not known who disabled these clients. A client's integration could enable it until now, and still can.
INSERT INTO suspension (client_id, kind)
SELECT id, CASE WHEN integration_id IS NULL THEN 'admin' ELSE 'integration' END FROM client WHERE disabled;
