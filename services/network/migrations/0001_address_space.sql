-- +goose Up
-- A constraint that a caller can run into is named <table>__<member of the body>.

CREATE TABLE port_speed (
	id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version    bigint NOT NULL DEFAULT 1,
	name       text NOT NULL,
	billing_id text,
	speed      integer NOT NULL CONSTRAINT port_speed__speed CHECK (speed > 0),
	search     text NOT NULL GENERATED ALWAYS AS (E'\n' || lower(name) || E'\n' || lower(coalesce(billing_id, ''))) STORED
);

CREATE INDEX port_speed_search ON port_speed USING gin (search gin_trgm_ops);
CREATE INDEX port_speed_by_name ON port_speed (name, id);
CREATE INDEX port_speed_by_speed ON port_speed (speed, id);
CREATE INDEX port_speed_by_billing_id ON port_speed (billing_id, id);

CREATE TABLE ip_group (
	id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version    bigint NOT NULL DEFAULT 1,
	name       text NOT NULL CONSTRAINT ip_group__name UNIQUE,
	billing_id text CONSTRAINT ip_group__billing_id UNIQUE,
	reserved   boolean NOT NULL,
	search     text NOT NULL GENERATED ALWAYS AS (E'\n' || lower(name) || E'\n' || lower(coalesce(billing_id, ''))) STORED
);

CREATE INDEX ip_group_search ON ip_group USING gin (search gin_trgm_ops);

-- Addresses as numbers. A range type over inet has no distance to offer to GiST, which then reads a hundred times
-- the pages that it reads of these.
--
-- Postgres writes these functions out where they are used, which a STRICT one, or an argument that is itself a
-- calculation, would prevent: a call costs more than all that it does.
-- +goose StatementBegin
CREATE FUNCTION v4_span(first inet, last inet) RETURNS int8range LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN first IS NOT NULL AND last IS NOT NULL THEN int8range(first - '0.0.0.0'::inet, last - '0.0.0.0'::inet, '[]') END;

CREATE FUNCTION v6_number(address inet) RETURNS numeric LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ((('x' || substr(encode(inet_send(address), 'hex'),  9, 8))::bit(32)::bigint::numeric  * 4294967296
	+ ('x' || substr(encode(inet_send(address), 'hex'), 17, 8))::bit(32)::bigint) * 4294967296
	+ ('x' || substr(encode(inet_send(address), 'hex'), 25, 8))::bit(32)::bigint) * 4294967296
	+ ('x' || substr(encode(inet_send(address), 'hex'), 33, 8))::bit(32)::bigint;

CREATE FUNCTION v6_span(first inet, last inet) RETURNS numrange LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN first IS NOT NULL AND last IS NOT NULL THEN numrange(v6_number(first), v6_number(last), '[]') END;

-- Private space, which every site may use for itself: RFC 1918, RFC 6598 and unique local addresses. True: all of it
-- is; false: none of it; NULL: it straddles.
CREATE FUNCTION v4_private(first inet, last inet) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
	WHEN first IS NULL OR last IS NULL THEN NULL
	WHEN first <<= '10.0.0.0/8' AND last <<= '10.0.0.0/8'
	  OR first <<= '100.64.0.0/10' AND last <<= '100.64.0.0/10'
	  OR first <<= '172.16.0.0/12' AND last <<= '172.16.0.0/12'
	  OR first <<= '192.168.0.0/16' AND last <<= '192.168.0.0/16'
	THEN true
	WHEN first <= '10.255.255.255' AND last >= '10.0.0.0'
	  OR first <= '100.127.255.255' AND last >= '100.64.0.0'
	  OR first <= '172.31.255.255' AND last >= '172.16.0.0'
	  OR first <= '192.168.255.255' AND last >= '192.168.0.0'
	THEN NULL
	ELSE false
END;

CREATE FUNCTION v6_private(first inet, last inet) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
	WHEN first IS NULL OR last IS NULL THEN NULL
	WHEN first <<= 'fc00::/7' AND last <<= 'fc00::/7' THEN true
	WHEN first <= 'fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff' AND last >= 'fc00::' THEN NULL
	ELSE false
END;

-- What an address is unique in: 0 is the world, any other number the group of that id.
CREATE FUNCTION v4_scope(first inet, last inet, group_id bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN first IS NULL OR last IS NULL THEN NULL WHEN v4_private(first, last) THEN group_id ELSE 0 END;

CREATE FUNCTION v6_scope(first inet, last inet, group_id bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN first IS NULL OR last IS NULL THEN NULL WHEN v6_private(first, last) THEN group_id ELSE 0 END;

-- An entity's addresses as text: 192.0.2.10, 192.0.2.10-192.0.2.20 or 192.0.2.0/29; the v6 ones where it has no v4.
CREATE FUNCTION full_ip(v4_first inet, v4_last inet, v4_bits smallint, v6_first inet, v6_bits smallint) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
	WHEN v4_first IS NULL THEN host(v6_first) || coalesce('/' || v6_bits::text, '')
	WHEN v4_bits IS NOT NULL THEN host(v4_first) || '/' || v4_bits::text
	WHEN v4_last > v4_first THEN host(v4_first) || '-' || host(v4_last)
	ELSE host(v4_first)
END;
-- +goose StatementEnd

-- One address, a range (v4) or a prefix of each family. bits is the length of a prefix, NULL for an address or a
-- range; mask is the length of the subnet that an address or a range lies in.
CREATE TABLE ip_entity (
	id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version    bigint NOT NULL DEFAULT 1,
	group_id   bigint NOT NULL CONSTRAINT ip_entity__group REFERENCES ip_group,
	nickname   text,
	billing_id text,
	vlan       integer CONSTRAINT ip_entity__vlan CHECK (vlan BETWEEN 1 AND 4094),
	v4_first   inet,
	v4_last    inet,
	v4_bits    smallint,
	v4_mask    smallint CHECK (v4_mask BETWEEN 1 AND 32),
	v4_router  inet CHECK (family(v4_router) = 4 AND masklen(v4_router) = 32),
	v6_first   inet,
	v6_last    inet,
	v6_bits    smallint,
	v6_router  inet CHECK (family(v6_router) = 6 AND masklen(v6_router) = 128),
	v4_span    int8range GENERATED ALWAYS AS (v4_span(v4_first, v4_last)) STORED,
	v6_span    numrange GENERATED ALWAYS AS (v6_span(v6_first, v6_last)) STORED,
	v4_scope   bigint GENERATED ALWAYS AS (v4_scope(v4_first, v4_last, group_id)) STORED,
	v6_scope   bigint GENERATED ALWAYS AS (v6_scope(v6_first, v6_last, group_id)) STORED,

	full_ip    text NOT NULL GENERATED ALWAYS AS (full_ip(v4_first, v4_last, v4_bits, v6_first, v6_bits)) STORED,
	name       text NOT NULL GENERATED ALWAYS AS (coalesce(nickname, full_ip(v4_first, v4_last, v4_bits, v6_first, v6_bits))) STORED,
	search     text GENERATED ALWAYS AS (nullif(coalesce(E'\n' || lower(nickname), '') || coalesce(E'\n' || lower(billing_id), ''), '')) STORED,

	CONSTRAINT ip_entity_has_an_address CHECK (v4_first IS NOT NULL OR v6_first IS NOT NULL),
	CONSTRAINT ip_entity_has_ends CHECK ((v4_first IS NULL) = (v4_last IS NULL) AND (v6_first IS NULL) = (v6_last IS NULL)),
	CONSTRAINT ip_entity_v4_is_v4 CHECK (family(v4_first) = 4 AND family(v4_last) = 4 AND masklen(v4_first) = 32 AND masklen(v4_last) = 32),
	CONSTRAINT ip_entity_v6_is_v6 CHECK (family(v6_first) = 6 AND family(v6_last) = 6 AND masklen(v6_first) = 128 AND masklen(v6_last) = 128),
	CONSTRAINT ip_entity_v6_is_no_v4 CHECK (NOT v6_first <<= '::ffff:0.0.0.0/96' AND NOT v6_last <<= '::ffff:0.0.0.0/96'),
	CONSTRAINT ip_entity_v4_prefix CHECK (CASE WHEN v4_bits IS NULL THEN v4_first <= v4_last
		ELSE v4_mask IS NULL AND host(network(set_masklen(v4_first, v4_bits)))::inet = v4_first AND host(broadcast(set_masklen(v4_first, v4_bits)))::inet = v4_last END),
	CONSTRAINT ip_entity_v6_prefix CHECK (CASE WHEN v6_bits IS NULL THEN v6_first = v6_last
		ELSE host(network(set_masklen(v6_first, v6_bits)))::inet = v6_first AND host(broadcast(set_masklen(v6_first, v6_bits)))::inet = v6_last END),
	CONSTRAINT ip_entity_v4_straddles CHECK (v4_first IS NULL OR v4_private(v4_first, v4_last) IS NOT NULL),
	CONSTRAINT ip_entity_v6_straddles CHECK (v6_first IS NULL OR v6_private(v6_first, v6_last) IS NOT NULL),

	-- The same address is never there twice.
	CONSTRAINT ip_entity__v4__address EXCLUDE USING gist (v4_scope WITH =, v4_span WITH &&) WHERE (v4_span IS NOT NULL),
	CONSTRAINT ip_entity__v6__address EXCLUDE USING gist (v6_scope WITH =, v6_span WITH &&) WHERE (v6_span IS NOT NULL)
);

CREATE INDEX ip_entity_by_group ON ip_entity (group_id, id);
CREATE INDEX ip_entity_by_name ON ip_entity (name, id);
CREATE INDEX ip_entity_by_vlan ON ip_entity (vlan, id) WHERE vlan IS NOT NULL;
CREATE INDEX ip_entity_by_billing_id ON ip_entity (billing_id, id) WHERE billing_id IS NOT NULL;
CREATE INDEX ip_entity_search ON ip_entity USING gin (search gin_trgm_ops) WHERE search IS NOT NULL;

-- Whether a search goes by its index or by the order of the list depends on how rare the planner knows a text to be.
ALTER TABLE ip_entity ALTER COLUMN search SET STATISTICS 1000;

-- Who an entity is assigned to stands apart: to update a row beside GiST indexes costs many times as much.
CREATE TABLE ip_assignment (
	entity_id   bigint PRIMARY KEY REFERENCES ip_entity ON DELETE CASCADE,
	owner_id    bigint NOT NULL,
	owner_name  text,
	server_id   bigint,
	server_name text
);

CREATE INDEX ip_assignment_by_owner ON ip_assignment (owner_id, entity_id);
CREATE INDEX ip_assignment_by_server ON ip_assignment (server_id) WHERE server_id IS NOT NULL;

CREATE VIEW ip_entity_view AS
SELECT e.id, e.version, e.name, e.nickname, e.billing_id, e.vlan, e.full_ip, e.search, e.v4_span, e.v6_span,
	v4.address, v4.gateway, v4.subnet_mask, v6.address AS v6_address, v6.gateway AS v6_gateway,
	v4.address AS v4_address, CASE WHEN e.v4_first IS NOT NULL THEN e.full_ip END AS v4_full, v4.gateway AS v4_gateway, v4.range_end AS v4_range_end, v4.subnet_mask AS v4_subnet_mask, v4.given_mask AS v4_given_mask,
	e.group_id, g.name AS group_name,
	a.owner_id, a.owner_name, a.server_id AS owner_server_id, a.server_name AS owner_server_name,
	CASE WHEN a.server_id IS NULL THEN 0 ELSE (SELECT count(*) - 1 FROM ip_assignment o WHERE o.server_id = a.server_id) END AS siblings_count
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

CREATE VIEW ip_group_view AS
SELECT g.id, g.version, g.name, g.billing_id, g.reserved, g.search, c.entities AS entities_count, c.servers AS servers_count, 0::bigint AS servers_inventory
FROM ip_group g
CROSS JOIN LATERAL (
	SELECT count(*) AS entities, count(DISTINCT a.server_id) AS servers
	FROM ip_entity e LEFT JOIN ip_assignment a ON a.entity_id = e.id WHERE e.group_id = g.id) c;
