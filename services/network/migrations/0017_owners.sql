-- +goose Up
-- An owner is a client: its row of ref is what is known of it here, and its name follows. Of assignments of before it is to
-- be found out whether the client exists. One that does not stays missing, whoever gets its number.
LOCK TABLE ip_assignment IN SHARE ROW EXCLUSIVE MODE;
ALTER TABLE ip_assignment ADD COLUMN owner_missing boolean NOT NULL DEFAULT true;
ALTER TABLE ip_assignment ALTER COLUMN owner_missing SET DEFAULT false;
CREATE INDEX ip_assignment_missing ON ip_assignment (entity_id) WHERE owner_missing;

CREATE TABLE ip_owner_of_before (owner_id bigint PRIMARY KEY);
INSERT INTO ip_owner_of_before SELECT DISTINCT owner_id FROM ip_assignment;

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION ip_assignment_of_entity() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	SELECT group_id, name, vlan INTO NEW.group_id, NEW.entity_name, NEW.vlan FROM ip_entity WHERE id = NEW.entity_id FOR SHARE; -- which nobody edits from now on
	SELECT name INTO NEW.owner_name FROM ref WHERE type = 'client' AND id = NEW.owner_id;
	RETURN NEW;
END $$;

CREATE FUNCTION ip_owner_renamed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	UPDATE ip_assignment SET owner_name = NEW.name WHERE owner_id = NEW.id AND NOT owner_missing;
	RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER ip_owner_renamed AFTER UPDATE ON ref FOR EACH ROW
	WHEN (NEW.type = 'client' AND NOT NEW.gone AND OLD.name <> NEW.name) EXECUTE FUNCTION ip_owner_renamed();

CREATE OR REPLACE VIEW ip_entity_view AS
SELECT e.id, e.version, e.name, e.nickname, e.billing_id, e.vlan, e.full_ip, e.search, e.v4_span, e.v6_span,
	v4.address, v4.gateway, v4.subnet_mask, v6.address AS v6_address, v6.gateway AS v6_gateway,
	v4.address AS v4_address, CASE WHEN e.v4_first IS NOT NULL THEN e.full_ip END AS v4_full, v4.gateway AS v4_gateway, v4.range_end AS v4_range_end, v4.subnet_mask AS v4_subnet_mask, v4.given_mask AS v4_given_mask,
	e.group_id, g.name AS group_name,
	a.owner_id, a.owner_name, a.server_id AS owner_server_id, a.server_name AS owner_server_name,
	CASE WHEN a.server_id IS NULL THEN 0 ELSE (SELECT count(*) - 1 FROM ip_assignment o WHERE o.server_id = a.server_id) END AS siblings_count,
	a.search AS owner_search,
	e.v4_first, e.v4_last, e.v4_scope, e.v6_first, e.v6_last, e.v6_scope,
	CASE WHEN e.v4_bits IS NULL AND e.v4_last > e.v4_first THEN host(e.v4_last) END AS v4_given_range_end,
	coalesce(e.v4_first, e.v6_first) AS first_address, a.entity_id IS NOT NULL AS assigned, a.owner_missing
FROM ip_entity e
LEFT JOIN ip_group g ON g.id = e.group_id -- LEFT lets the planner leave out what is not asked for
LEFT JOIN ip_assignment a ON a.entity_id = e.id
CROSS JOIN LATERAL (SELECT
	host(e.v4_first) || coalesce('/' || e.v4_bits, '') AS address,
	host(e.v4_router) AS gateway,
	CASE WHEN e.v4_bits IS NULL THEN host(e.v4_last) END AS range_end,
	host(netmask(set_masklen('0.0.0.0'::inet, coalesce(e.v4_bits, e.v4_mask)))) AS subnet_mask,
	host(netmask(set_masklen('0.0.0.0'::inet, e.v4_mask))) AS given_mask) v4
CROSS JOIN LATERAL (SELECT
	host(e.v6_first) || coalesce('/' || e.v6_bits, '') AS address,
	host(e.v6_router) AS gateway) v6;

CREATE OR REPLACE VIEW ip_entity_of_owner AS
SELECT a.entity_id AS id, a.owner_id, a.server_id AS owner_server_id, a.group_id, a.entity_name AS name, a.vlan, a.search AS owner_search,
	e.billing_id, e.search, e.v4_span, e.v6_span, e.v4_first, e.v4_last, e.v4_scope, e.v6_first, e.v6_last, e.v6_scope, true AS assigned,
	a.owner_missing
FROM ip_assignment a LEFT JOIN ip_entity e ON e.id = a.entity_id;

CREATE OR REPLACE VIEW ip_entity_free AS
SELECT f.entity_id AS id, f.group_id, coalesce(f.v4_first, f.v6_first) AS first_address, false AS assigned,
	NULL::bigint AS owner_id, NULL::bigint AS owner_server_id, NULL::text AS owner_search,
	e.name, e.billing_id, e.vlan, e.search, e.v4_span, e.v6_span, e.v4_first, e.v4_last, e.v4_scope, e.v6_first, e.v6_last, e.v6_scope,
	NULL::boolean AS owner_missing
FROM ip_free f LEFT JOIN ip_entity e ON e.id = f.entity_id;
