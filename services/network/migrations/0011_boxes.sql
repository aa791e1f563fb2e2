-- +goose Up
-- Overlaps are looked for in boxes. What GiST does to place a box is a few comparisons of numbers; with ranges it is many
-- calls, and 65,536 entities took it ten seconds. A box has two sides: an IPv4 entity's are its addresses and its scope.
-- An IPv6 address is in three parts, of 48, 40 and 40 bits, as a side holds no more than 53 exactly, and that of an
-- address or a prefix is a box of each: two of them overlap if all of their sides do. Sides that touch overlap, so whole
-- numbers end in .5, which also gives a single one an area to be placed by.
--
-- The columns v4_span and v6_span stay: they tell the planner how much there is of what is looked for.

-- +goose StatementBegin
CREATE FUNCTION v4_box(first inet, last inet, from_scope bigint, to_scope bigint) RETURNS box LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN first IS NOT NULL AND last IS NOT NULL THEN box(
	point(first - '0.0.0.0'::inet, from_scope),
	point(last - '0.0.0.0'::inet + 0.5::float8, to_scope + 0.5::float8)) END;

CREATE FUNCTION v6_upper(first inet, last inet, from_scope bigint, to_scope bigint) RETURNS box LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN first IS NOT NULL AND last IS NOT NULL THEN box(
	point(('x' || substr(encode(inet_send(first), 'hex'), 9, 12))::bit(48)::bigint, from_scope),
	point(('x' || substr(encode(inet_send(last), 'hex'), 9, 12))::bit(48)::bigint + 0.5::float8, to_scope + 0.5::float8)) END;

CREATE FUNCTION v6_lower(first inet, last inet) RETURNS box LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN first IS NOT NULL AND last IS NOT NULL THEN box(
	point(('x' || substr(encode(inet_send(first), 'hex'), 21, 10))::bit(40)::bigint, ('x' || substr(encode(inet_send(first), 'hex'), 31, 10))::bit(40)::bigint),
	point(('x' || substr(encode(inet_send(last), 'hex'), 21, 10))::bit(40)::bigint + 0.5::float8, ('x' || substr(encode(inet_send(last), 'hex'), 31, 10))::bit(40)::bigint + 0.5::float8)) END;
-- +goose StatementEnd

LOCK TABLE ip_entity IN SHARE ROW EXCLUSIVE MODE;
ALTER TABLE ip_entity DROP CONSTRAINT ip_entity__v4__address, DROP CONSTRAINT ip_entity__v6__address;
ALTER TABLE ip_entity
	ADD CONSTRAINT ip_entity__v4__address EXCLUDE USING gist (v4_box(v4_first, v4_last, v4_scope, v4_scope) WITH &&) WHERE (v4_first IS NOT NULL),
	ADD CONSTRAINT ip_entity__v6__address EXCLUDE USING gist (v6_upper(v6_first, v6_last, v6_scope, v6_scope) WITH &&, v6_lower(v6_first, v6_last) WITH &&) WHERE (v6_first IS NOT NULL);

-- What lies in a prefix begins in it, and of that the planner knows how much there is.
CREATE INDEX ip_entity_by_v4 ON ip_entity (v4_first) WHERE v4_first IS NOT NULL;
CREATE INDEX ip_entity_by_v6 ON ip_entity (v6_first) WHERE v6_first IS NOT NULL;

CREATE OR REPLACE VIEW ip_entity_view AS
SELECT e.id, e.version, e.name, e.nickname, e.billing_id, e.vlan, e.full_ip, e.search, e.v4_span, e.v6_span,
	v4.address, v4.gateway, v4.subnet_mask, v6.address AS v6_address, v6.gateway AS v6_gateway,
	v4.address AS v4_address, CASE WHEN e.v4_first IS NOT NULL THEN e.full_ip END AS v4_full, v4.gateway AS v4_gateway, v4.range_end AS v4_range_end, v4.subnet_mask AS v4_subnet_mask, v4.given_mask AS v4_given_mask,
	e.group_id, g.name AS group_name,
	a.owner_id, a.owner_name, a.server_id AS owner_server_id, a.server_name AS owner_server_name,
	CASE WHEN a.server_id IS NULL THEN 0 ELSE (SELECT count(*) - 1 FROM ip_assignment o WHERE o.server_id = a.server_id) END AS siblings_count,
	a.search AS owner_search,
	e.v4_first, e.v4_last, e.v4_scope, e.v6_first, e.v6_last, e.v6_scope
FROM ip_entity e
LEFT JOIN ip_group g ON g.id = e.group_id -- LEFT lets the planner leave out what is not asked for
LEFT JOIN ip_assignment a ON a.entity_id = e.id
CROSS JOIN LATERAL (SELECT
	host(e.v4_first) || coalesce('/' || e.v4_bits, '') AS address,
	host(e.v4_router) AS gateway,
	CASE WHEN e.v4_bits IS NULL AND e.v4_last > e.v4_first THEN host(e.v4_last) END AS range_end,
	host(netmask(set_masklen('0.0.0.0'::inet, coalesce(e.v4_bits, e.v4_mask)))) AS subnet_mask,
	host(netmask(set_masklen('0.0.0.0'::inet, e.v4_mask))) AS given_mask) v4
CROSS JOIN LATERAL (SELECT
	host(e.v6_first) || coalesce('/' || e.v6_bits, '') AS address,
	host(e.v6_router) AS gateway) v6;

CREATE OR REPLACE VIEW ip_entity_of_owner AS
SELECT a.entity_id AS id, a.owner_id, a.server_id AS owner_server_id, a.group_id, a.entity_name AS name, a.vlan, a.search AS owner_search,
	e.billing_id, e.search, e.v4_span, e.v6_span, e.v4_first, e.v4_last, e.v4_scope, e.v6_first, e.v6_last, e.v6_scope
FROM ip_assignment a LEFT JOIN ip_entity e ON e.id = a.entity_id;
