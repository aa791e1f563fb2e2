-- The schema of the network service. Written by make schema: do not edit it.
-- The tables that every service has are in pkg/runtime/host/schema.sql.

CREATE OR REPLACE FUNCTION free_bits(first inet, last inet, bits smallint)
 RETURNS smallint
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN (first = last) THEN (masklen(first))::smallint ELSE bits END;

CREATE OR REPLACE FUNCTION free_chunk(first inet, bits smallint)
 RETURNS cidr
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN (bits = masklen(first)) THEN network(set_masklen(first, (bits - 10))) ELSE NULL::cidr END;

CREATE OR REPLACE FUNCTION full_ip(v4_first inet, v4_last inet, v4_bits smallint, v6_first inet, v6_bits smallint)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN (v4_first IS NULL) THEN (host(v6_first) || COALESCE(('/' || (v6_bits)::text), '')) WHEN (v4_bits IS NOT NULL) THEN ((host(v4_first) || '/') || (v4_bits)::text) WHEN (v4_last > v4_first) THEN ((host(v4_first) || '-') || host(v4_last)) ELSE host(v4_first) END;

CREATE OR REPLACE FUNCTION largest_free(of_group bigint, of_chunk cidr, OUT first inet, OUT bits smallint)
 RETURNS SETOF record
 LANGUAGE sql
 STABLE PARALLEL SAFE
BEGIN ATOMIC
 SELECT l.first,
     l.bits
    FROM largest_free(largest_free.of_group, largest_free.of_chunk, false) l(first, bits);
END;

CREATE OR REPLACE FUNCTION largest_free(of_group bigint, of_chunk cidr, due boolean, OUT first inet, OUT bits smallint)
 RETURNS SETOF record
 LANGUAGE sql
 STABLE PARALLEL SAFE
BEGIN ATOMIC
 WITH ends AS (
          SELECT set_masklen((largest_free.of_chunk)::inet, (masklen((largest_free.of_chunk)::inet) + 10)) AS lowest,
             set_masklen(broadcast((largest_free.of_chunk)::inet), (masklen((largest_free.of_chunk)::inet) + 10)) AS highest
         ), address AS (
          SELECT (f.v4_first - ends_1.lowest) AS n
            FROM ends ends_1,
             ip_free f
           WHERE ((f.group_id = largest_free.of_group) AND ((f.v4_first >= ends_1.lowest) AND (f.v4_first <= ends_1.highest)) AND (f.v4_bits = 32))
         UNION ALL
          SELECT (f.v6_first - ends_1.lowest)
            FROM ends ends_1,
             ip_free f
           WHERE ((f.group_id = largest_free.of_group) AND ((f.v6_first >= ends_1.lowest) AND (f.v6_first <= ends_1.highest)) AND (f.v6_bits = 128))
         UNION ALL
          SELECT (e.v4_first - ends_1.lowest)
            FROM ends ends_1,
             (ip_assignment a
              JOIN ip_entity e ON ((e.id = a.entity_id)))
           WHERE (largest_free.due AND (a.available_at <= now()) AND (a.group_id = largest_free.of_group) AND ((e.v4_first >= ends_1.lowest) AND (e.v4_first <= ends_1.highest)) AND (e.v4_last = e.v4_first))
         UNION ALL
          SELECT (e.v6_first - ends_1.lowest)
            FROM ends ends_1,
             (ip_assignment a
              JOIN ip_entity e ON ((e.id = a.entity_id)))
           WHERE (largest_free.due AND (a.available_at <= now()) AND (a.group_id = largest_free.of_group) AND ((e.v6_first >= ends_1.lowest) AND (e.v6_first <= ends_1.highest)) AND (e.v6_last = e.v6_first))
         ), run AS (
          SELECT min(a.n) AS first,
             max(a.n) AS last
            FROM ( SELECT address.n,
                     (address.n - row_number() OVER (ORDER BY address.n)) AS run
                    FROM address) a
           GROUP BY a.run
         )
  SELECT (ends.lowest + block.begins),
     ((masklen(ends.lowest) - size.size))::smallint AS int2
    FROM ends,
     run,
     (generate_series(0, 10) size(size)
      CROSS JOIN LATERAL ( SELECT ((((run.first + (1 << size.size)) - 1) >> size.size) << size.size) AS begins) block)
   WHERE (((block.begins + (1 << size.size)) - 1) <= run.last)
   ORDER BY size.size DESC, block.begins
  LIMIT 1;
END;

CREATE OR REPLACE FUNCTION pieces(of_text text)
 RETURNS text[]
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE STRICT
RETURN ARRAY(SELECT substr(pieces.of_text, n.n, 5) AS substr FROM generate_series(1, (length(pieces.of_text) - 4)) n(n));

CREATE OR REPLACE FUNCTION v4_box(first inet, last inet, from_scope bigint, to_scope bigint)
 RETURNS box
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN ((first IS NOT NULL) AND (last IS NOT NULL)) THEN box(point(((first - '0.0.0.0'::inet))::double precision, (from_scope)::double precision), point((((last - '0.0.0.0'::inet))::double precision + (0.5)::double precision), ((to_scope)::double precision + (0.5)::double precision))) ELSE NULL::box END;

CREATE OR REPLACE FUNCTION v4_private(first inet, last inet)
 RETURNS boolean
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN ((first IS NULL) OR (last IS NULL)) THEN NULL::boolean WHEN (((first <<= '10.0.0.0/8'::inet) AND (last <<= '10.0.0.0/8'::inet)) OR ((first <<= '100.64.0.0/10'::inet) AND (last <<= '100.64.0.0/10'::inet)) OR ((first <<= '172.16.0.0/12'::inet) AND (last <<= '172.16.0.0/12'::inet)) OR ((first <<= '192.168.0.0/16'::inet) AND (last <<= '192.168.0.0/16'::inet))) THEN true WHEN (((first <= '10.255.255.255'::inet) AND (last >= '10.0.0.0'::inet)) OR ((first <= '100.127.255.255'::inet) AND (last >= '100.64.0.0'::inet)) OR ((first <= '172.31.255.255'::inet) AND (last >= '172.16.0.0'::inet)) OR ((first <= '192.168.255.255'::inet) AND (last >= '192.168.0.0'::inet))) THEN NULL::boolean ELSE false END;

CREATE OR REPLACE FUNCTION v4_scope(first inet, last inet, group_id bigint)
 RETURNS bigint
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN ((first IS NULL) OR (last IS NULL)) THEN NULL::bigint WHEN v4_private(first, last) THEN group_id ELSE (0)::bigint END;

CREATE OR REPLACE FUNCTION v4_span(first inet, last inet)
 RETURNS int8range
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN ((first IS NOT NULL) AND (last IS NOT NULL)) THEN int8range((first - '0.0.0.0'::inet), (last - '0.0.0.0'::inet), '[]') ELSE NULL::int8range END;

CREATE OR REPLACE FUNCTION v6_lower(first inet, last inet)
 RETURNS box
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN ((first IS NOT NULL) AND (last IS NOT NULL)) THEN box(point((((('x' || substr(encode(inet_send(first), 'hex'), 21, 10)))::bit(40))::bigint)::double precision, (((('x' || substr(encode(inet_send(first), 'hex'), 31, 10)))::bit(40))::bigint)::double precision), point(((((('x' || substr(encode(inet_send(last), 'hex'), 21, 10)))::bit(40))::bigint)::double precision + (0.5)::double precision), ((((('x' || substr(encode(inet_send(last), 'hex'), 31, 10)))::bit(40))::bigint)::double precision + (0.5)::double precision))) ELSE NULL::box END;

CREATE OR REPLACE FUNCTION v6_number(address inet)
 RETURNS numeric
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN (((((((((('x' || substr(encode(inet_send(address), 'hex'), 9, 8)))::bit(32))::bigint)::numeric * ('4294967296'::bigint)::numeric) + (((('x' || substr(encode(inet_send(address), 'hex'), 17, 8)))::bit(32))::bigint)::numeric) * ('4294967296'::bigint)::numeric) + (((('x' || substr(encode(inet_send(address), 'hex'), 25, 8)))::bit(32))::bigint)::numeric) * ('4294967296'::bigint)::numeric) + (((('x' || substr(encode(inet_send(address), 'hex'), 33, 8)))::bit(32))::bigint)::numeric);

CREATE OR REPLACE FUNCTION v6_private(first inet, last inet)
 RETURNS boolean
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN ((first IS NULL) OR (last IS NULL)) THEN NULL::boolean WHEN ((first <<= 'fc00::/7'::inet) AND (last <<= 'fc00::/7'::inet)) THEN true WHEN ((first <= 'fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'::inet) AND (last >= 'fc00::'::inet)) THEN NULL::boolean ELSE false END;

CREATE OR REPLACE FUNCTION v6_scope(first inet, last inet, group_id bigint)
 RETURNS bigint
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN ((first IS NULL) OR (last IS NULL)) THEN NULL::bigint WHEN v6_private(first, last) THEN group_id ELSE (0)::bigint END;

CREATE OR REPLACE FUNCTION v6_span(first inet, last inet)
 RETURNS numrange
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN ((first IS NOT NULL) AND (last IS NOT NULL)) THEN numrange(v6_number(first), v6_number(last), '[]') ELSE NULL::numrange END;

CREATE OR REPLACE FUNCTION v6_upper(first inet, last inet, from_scope bigint, to_scope bigint)
 RETURNS box
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN ((first IS NOT NULL) AND (last IS NOT NULL)) THEN box(point((((('x' || substr(encode(inet_send(first), 'hex'), 9, 12)))::bit(48))::bigint)::double precision, (from_scope)::double precision), point(((((('x' || substr(encode(inet_send(last), 'hex'), 9, 12)))::bit(48))::bigint)::double precision + (0.5)::double precision), ((to_scope)::double precision + (0.5)::double precision))) ELSE NULL::box END;

CREATE TABLE allocating (
	stripe smallint NOT NULL,
	slot smallint NOT NULL,
	CONSTRAINT allocating_pkey PRIMARY KEY (stripe, slot)
);

CREATE TABLE field (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	version bigint NOT NULL DEFAULT 1,
	name text NOT NULL,
	slug text NOT NULL,
	description text,
	placeholder text,
	default_value text,
	target_type text NOT NULL,
	type text NOT NULL,
	options text,
	search text NOT NULL GENERATED ALWAYS AS (((E'\n' || lower(name)) || E'\n') || lower(slug)) STORED,
	clear_on_release boolean NOT NULL DEFAULT true,
	CONSTRAINT field_pkey PRIMARY KEY (id),
	CONSTRAINT field_check CHECK ((options IS NOT NULL) = (type = 'select')),
	CONSTRAINT field_target_type_check CHECK (target_type = ANY (ARRAY['client', 'entity', 'group', 'server'])),
	CONSTRAINT field_type_check CHECK (type = ANY (ARRAY['text', 'integer', 'checkbox', 'date', 'select'])),
	CONSTRAINT field__slug UNIQUE (target_type, slug),
	CONSTRAINT field_id_target_type_key UNIQUE (id, target_type)
);
CREATE INDEX field_by_name ON field (name, id);
CREATE INDEX field_by_slug ON field (slug, id);
CREATE INDEX field_search ON field USING gin (search gin_trgm_ops);

CREATE TABLE field_value (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	version bigint NOT NULL DEFAULT 1,
	field_id bigint NOT NULL,
	target_type text NOT NULL,
	target_id bigint NOT NULL,
	value text NOT NULL,
	entity_id bigint GENERATED ALWAYS AS (CASE target_type WHEN 'entity' THEN target_id ELSE NULL::bigint END) STORED,
	group_id bigint GENERATED ALWAYS AS (CASE target_type WHEN 'group' THEN target_id ELSE NULL::bigint END) STORED,
	CONSTRAINT field_value_pkey PRIMARY KEY (id),
	CONSTRAINT field_value_field FOREIGN KEY (field_id, target_type) REFERENCES field(id, target_type) ON DELETE CASCADE,
	CONSTRAINT field_value_of_entity__target_id FOREIGN KEY (entity_id) REFERENCES ip_entity(id) ON DELETE CASCADE,
	CONSTRAINT field_value_of_group__target_id FOREIGN KEY (group_id) REFERENCES ip_group(id) ON DELETE CASCADE,
	CONSTRAINT field_value__target_id UNIQUE (field_id, target_id)
);
CREATE INDEX field_value_by_entity ON field_value (entity_id) WHERE entity_id IS NOT NULL;
CREATE INDEX field_value_by_group ON field_value (group_id) WHERE group_id IS NOT NULL;
CREATE INDEX field_value_by_target ON field_value (target_type, target_id);

CREATE TABLE folding (
	one boolean NOT NULL DEFAULT true,
	CONSTRAINT folding_pkey PRIMARY KEY (one),
	CONSTRAINT folding_one_check CHECK (one)
);

CREATE TABLE forward_gateway (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	version bigint NOT NULL DEFAULT 1,
	name text NOT NULL,
	hostname text NOT NULL,
	api_key bytea,
	port_limit text NOT NULL,
	group_ids bigint[],
	search text NOT NULL GENERATED ALWAYS AS (((E'\n' || lower(name)) || E'\n') || lower(hostname)) STORED,
	CONSTRAINT forward_gateway_pkey PRIMARY KEY (id),
	CONSTRAINT forward_gateway__name UNIQUE (name)
);
CREATE INDEX forward_gateway_by_group ON forward_gateway USING gin (group_ids);
CREATE INDEX forward_gateway_by_hostname ON forward_gateway (hostname, id);
CREATE INDEX forward_gateway_by_name ON forward_gateway (name, id);
CREATE INDEX forward_gateway_search ON forward_gateway USING gin (search gin_trgm_ops);
CREATE TRIGGER forward_gateway_groups AFTER INSERT OR UPDATE OF group_ids ON forward_gateway FOR EACH ROW EXECUTE FUNCTION forward_gateway_groups(); -- schema/functions/forward_gateway_groups.sql

CREATE TABLE forward_gateway_group (
	gateway_id bigint NOT NULL,
	group_id bigint NOT NULL,
	CONSTRAINT forward_gateway_group_pkey PRIMARY KEY (gateway_id, group_id),
	CONSTRAINT forward_gateway__groups FOREIGN KEY (group_id) REFERENCES ip_group(id),
	CONSTRAINT forward_gateway_group_gateway_id_fkey FOREIGN KEY (gateway_id) REFERENCES forward_gateway(id) ON DELETE CASCADE
);
CREATE INDEX forward_gateway_group_by_group ON forward_gateway_group (group_id);

CREATE TABLE forward_type (
	id bigint NOT NULL,
	version bigint NOT NULL DEFAULT 1,
	name text NOT NULL,
	slug text NOT NULL,
	search text NOT NULL GENERATED ALWAYS AS (((E'\n' || lower(name)) || E'\n') || lower(slug)) STORED,
	CONSTRAINT forward_type_pkey PRIMARY KEY (id),
	CONSTRAINT forward_type_slug_key UNIQUE (slug)
);

CREATE TABLE ip_assignment (
	entity_id bigint NOT NULL,
	owner_id bigint,
	owner_name text,
	server_id bigint,
	server_name text,
	group_id bigint NOT NULL,
	search text GENERATED ALWAYS AS (NULLIF(COALESCE(E'\n' || lower(owner_name), '') || COALESCE(E'\n' || lower(server_name), ''), '')) STORED,
	entity_name text NOT NULL,
	vlan integer,
	owner_missing boolean NOT NULL DEFAULT false,
	note text,
	available_at timestamp with time zone,
	via_id bigint,
	via_link bigint,
	CONSTRAINT ip_assignment_pkey PRIMARY KEY (entity_id),
	CONSTRAINT ip_assignment_given CHECK (num_nonnulls(via_id, via_link) = 0 OR num_nonnulls(owner_id, via_id, via_link) = 3 AND via_id <> owner_id AND NOT owner_missing),
	CONSTRAINT ip_assignment_status CHECK (CASE WHEN owner_id IS NOT NULL THEN note IS NULL AND available_at IS NULL ELSE num_nonnulls(owner_name, server_id, server_name) = 0 AND NOT owner_missing AND num_nonnulls(note, available_at) <= 1 END),
	CONSTRAINT ip_assignment_of_entity FOREIGN KEY (group_id, entity_id) REFERENCES ip_entity(group_id, id) ON UPDATE CASCADE ON DELETE CASCADE
);
ALTER TABLE ip_assignment ALTER COLUMN search SET STATISTICS 1000;
CREATE INDEX ip_assignment_by_owner ON ip_assignment (owner_id, entity_id);
CREATE INDEX ip_assignment_by_owner_and_name ON ip_assignment (owner_id, entity_name, entity_id);
CREATE INDEX ip_assignment_by_owner_and_vlan ON ip_assignment (owner_id, vlan, entity_id) WHERE vlan IS NOT NULL;
CREATE INDEX ip_assignment_by_server ON ip_assignment (server_id) WHERE server_id IS NOT NULL;
CREATE INDEX ip_assignment_by_via ON ip_assignment (via_id, entity_id) WHERE via_id IS NOT NULL;
CREATE INDEX ip_assignment_by_via_link ON ip_assignment (via_link) WHERE via_link IS NOT NULL;
CREATE INDEX ip_assignment_missing ON ip_assignment (entity_id) WHERE owner_missing;
CREATE INDEX ip_assignment_pieces ON ip_assignment USING gin (pieces(search)) WHERE search IS NOT NULL;
CREATE INDEX ip_assignment_quarantined ON ip_assignment (group_id, available_at, entity_id) WHERE available_at IS NOT NULL;
CREATE INDEX ip_assignment_reserved ON ip_assignment (entity_id) WHERE owner_id IS NULL AND available_at IS NULL;
CREATE INDEX ip_assignment_reserved_by_group ON ip_assignment (group_id, entity_id) WHERE owner_id IS NULL AND available_at IS NULL;
CREATE INDEX ip_assignment_reserved_by_name ON ip_assignment (entity_name, entity_id) WHERE owner_id IS NULL AND available_at IS NULL;
CREATE INDEX ip_assignment_search ON ip_assignment USING gin (search gin_trgm_ops) WHERE search IS NOT NULL;
CREATE TRIGGER ip_assignment_claimed BEFORE UPDATE OF owner_id ON ip_assignment FOR EACH ROW WHEN (old.owner_id IS NULL AND new.owner_id IS NOT NULL) EXECUTE FUNCTION ip_assignment_claimed(); -- schema/functions/ip_assignment_claimed.sql
CREATE TRIGGER ip_assignment_given BEFORE UPDATE OF owner_id ON ip_assignment FOR EACH ROW WHEN (old.via_id IS NOT NULL AND old.owner_id IS DISTINCT FROM new.owner_id) EXECUTE FUNCTION ip_assignment_given(); -- schema/functions/ip_assignment_given.sql
CREATE TRIGGER ip_assignment_kept BEFORE DELETE ON ip_assignment FOR EACH ROW WHEN (old.owner_id IS NULL AND (old.available_at IS NULL OR old.available_at > now())) EXECUTE FUNCTION ip_assignment_kept(); -- schema/functions/ip_assignment_kept.sql
CREATE TRIGGER ip_assignment_of_entity BEFORE INSERT ON ip_assignment FOR EACH ROW EXECUTE FUNCTION ip_assignment_of_entity(); -- schema/functions/ip_assignment_of_entity.sql
CREATE TRIGGER ip_free_assigned AFTER INSERT ON ip_assignment REFERENCING NEW TABLE AS assigned FOR EACH STATEMENT EXECUTE FUNCTION ip_free_assigned(); -- schema/functions/ip_free_assigned.sql
CREATE TRIGGER ip_free_released AFTER DELETE ON ip_assignment REFERENCING OLD TABLE AS released FOR EACH STATEMENT EXECUTE FUNCTION ip_free_released(); -- schema/functions/ip_free_released.sql
CREATE TRIGGER ip_group_server_changed AFTER UPDATE ON ip_assignment FOR EACH ROW WHEN (old.group_id IS DISTINCT FROM new.group_id OR old.server_id IS DISTINCT FROM new.server_id) EXECUTE FUNCTION ip_group_server_changed(); -- schema/functions/ip_group_server_changed.sql
CREATE TRIGGER ip_group_servers_added AFTER INSERT ON ip_assignment REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION ip_group_servers_added(); -- schema/functions/ip_group_servers_added.sql
CREATE TRIGGER ip_group_servers_removed AFTER DELETE ON ip_assignment REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION ip_group_servers_removed(); -- schema/functions/ip_group_servers_removed.sql
CREATE TRIGGER ip_held_added AFTER INSERT ON ip_assignment REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION ip_held_added(); -- schema/functions/ip_held_added.sql
CREATE TRIGGER ip_held_changed AFTER UPDATE ON ip_assignment FOR EACH ROW WHEN (old.group_id IS DISTINCT FROM new.group_id OR (old.owner_id IS NULL) IS DISTINCT FROM (new.owner_id IS NULL) OR (old.available_at IS NULL) IS DISTINCT FROM (new.available_at IS NULL)) EXECUTE FUNCTION ip_held_changed(); -- schema/functions/ip_held_changed.sql
CREATE TRIGGER ip_held_removed AFTER DELETE ON ip_assignment REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION ip_held_removed(); -- schema/functions/ip_held_removed.sql

CREATE TABLE ip_entity (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	version bigint NOT NULL DEFAULT 1,
	group_id bigint NOT NULL,
	nickname text,
	billing_id text,
	vlan integer,
	v4_first inet,
	v4_last inet,
	v4_bits smallint,
	v4_mask smallint,
	v4_router inet,
	v6_first inet,
	v6_last inet,
	v6_bits smallint,
	v6_router inet,
	v4_span int8range GENERATED ALWAYS AS (v4_span(v4_first, v4_last)) STORED,
	v6_span numrange GENERATED ALWAYS AS (v6_span(v6_first, v6_last)) STORED,
	v4_scope bigint GENERATED ALWAYS AS (v4_scope(v4_first, v4_last, group_id)) STORED,
	v6_scope bigint GENERATED ALWAYS AS (v6_scope(v6_first, v6_last, group_id)) STORED,
	full_ip text NOT NULL GENERATED ALWAYS AS (full_ip(v4_first, v4_last, v4_bits, v6_first, v6_bits)) STORED,
	name text NOT NULL GENERATED ALWAYS AS (COALESCE(nickname, full_ip(v4_first, v4_last, v4_bits, v6_first, v6_bits))) STORED,
	search text GENERATED ALWAYS AS (NULLIF(COALESCE(E'\n' || lower(nickname), '') || COALESCE(E'\n' || lower(billing_id), ''), '')) STORED,
	CONSTRAINT ip_entity_pkey PRIMARY KEY (id),
	CONSTRAINT ip_entity__vlan CHECK (vlan >= 1 AND vlan <= 4094),
	CONSTRAINT ip_entity_has_an_address CHECK (v4_first IS NOT NULL OR v6_first IS NOT NULL),
	CONSTRAINT ip_entity_has_ends CHECK ((v4_first IS NULL) = (v4_last IS NULL) AND (v6_first IS NULL) = (v6_last IS NULL)),
	CONSTRAINT ip_entity_v4_is_v4 CHECK (family(v4_first) = 4 AND family(v4_last) = 4 AND masklen(v4_first) = 32 AND masklen(v4_last) = 32),
	CONSTRAINT ip_entity_v4_mask_check CHECK (v4_mask >= 1 AND v4_mask <= 32),
	CONSTRAINT ip_entity_v4_prefix CHECK (CASE WHEN v4_bits IS NULL THEN v4_first <= v4_last ELSE v4_mask IS NULL AND host(network(set_masklen(v4_first, v4_bits::integer))::inet)::inet = v4_first AND host(broadcast(set_masklen(v4_first, v4_bits::integer)))::inet = v4_last END),
	CONSTRAINT ip_entity_v4_router_check CHECK (family(v4_router) = 4 AND masklen(v4_router) = 32),
	CONSTRAINT ip_entity_v4_straddles CHECK (v4_first IS NULL OR v4_private(v4_first, v4_last) IS NOT NULL),
	CONSTRAINT ip_entity_v6_is_no_v4 CHECK (NOT v6_first <<= '::ffff:0.0.0.0/96'::inet AND NOT v6_last <<= '::ffff:0.0.0.0/96'::inet),
	CONSTRAINT ip_entity_v6_is_v6 CHECK (family(v6_first) = 6 AND family(v6_last) = 6 AND masklen(v6_first) = 128 AND masklen(v6_last) = 128),
	CONSTRAINT ip_entity_v6_prefix CHECK (CASE WHEN v6_bits IS NULL THEN v6_first = v6_last ELSE host(network(set_masklen(v6_first, v6_bits::integer))::inet)::inet = v6_first AND host(broadcast(set_masklen(v6_first, v6_bits::integer)))::inet = v6_last END),
	CONSTRAINT ip_entity_v6_router_check CHECK (family(v6_router) = 6 AND masklen(v6_router) = 128),
	CONSTRAINT ip_entity_v6_straddles CHECK (v6_first IS NULL OR v6_private(v6_first, v6_last) IS NOT NULL),
	CONSTRAINT ip_entity__group FOREIGN KEY (group_id) REFERENCES ip_group(id),
	CONSTRAINT ip_entity_by_group UNIQUE (group_id, id),
	CONSTRAINT ip_entity__v4__address EXCLUDE USING gist (v4_box(v4_first, v4_last, v4_scope, v4_scope) WITH &&) WHERE (v4_first IS NOT NULL),
	CONSTRAINT ip_entity__v6__address EXCLUDE USING gist (v6_upper(v6_first, v6_last, v6_scope, v6_scope) WITH &&, v6_lower(v6_first, v6_last) WITH &&) WHERE (v6_first IS NOT NULL)
) WITH (fillfactor=90);
ALTER TABLE ip_entity ALTER COLUMN search SET STATISTICS 1000;
CREATE INDEX ip_entity_by_address ON ip_entity (COALESCE(v4_first, v6_first), id);
CREATE INDEX ip_entity_by_billing_id ON ip_entity (billing_id, id) WHERE billing_id IS NOT NULL;
CREATE INDEX ip_entity_by_group_and_address ON ip_entity (group_id, COALESCE(v4_first, v6_first), id);
CREATE INDEX ip_entity_by_group_and_name ON ip_entity (group_id, name, id);
CREATE INDEX ip_entity_by_name ON ip_entity (name, id);
CREATE INDEX ip_entity_by_v6 ON ip_entity (v6_first) WHERE v6_first IS NOT NULL;
CREATE INDEX ip_entity_by_vlan ON ip_entity (vlan, id) WHERE vlan IS NOT NULL;
CREATE INDEX ip_entity_by_vlan_and_name ON ip_entity (vlan, name, id) WHERE vlan IS NOT NULL;
CREATE INDEX ip_entity_pieces ON ip_entity USING gin (pieces(search)) WHERE search IS NOT NULL;
CREATE INDEX ip_entity_search ON ip_entity USING gin (search gin_trgm_ops) WHERE search IS NOT NULL;
CREATE TRIGGER ip_assignment_renamed AFTER UPDATE ON ip_entity FOR EACH ROW WHEN (old.name IS DISTINCT FROM new.name OR old.vlan IS DISTINCT FROM new.vlan) EXECUTE FUNCTION ip_assignment_renamed(); -- schema/functions/ip_assignment_renamed.sql
CREATE TRIGGER ip_free_added AFTER INSERT ON ip_entity REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION ip_free_added(); -- schema/functions/ip_free_added.sql
CREATE TRIGGER ip_free_moved AFTER UPDATE OF group_id, v4_first, v4_last, v4_bits, v6_first, v6_last, v6_bits ON ip_entity FOR EACH ROW WHEN (old.group_id IS DISTINCT FROM new.group_id OR old.v4_first IS DISTINCT FROM new.v4_first OR old.v4_last IS DISTINCT FROM new.v4_last OR old.v4_bits IS DISTINCT FROM new.v4_bits OR old.v6_first IS DISTINCT FROM new.v6_first OR old.v6_last IS DISTINCT FROM new.v6_last OR old.v6_bits IS DISTINCT FROM new.v6_bits) EXECUTE FUNCTION ip_free_moved(); -- schema/functions/ip_free_moved.sql
CREATE TRIGGER ip_group_entities_added AFTER INSERT ON ip_entity REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION ip_group_entities_added(); -- schema/functions/ip_group_entities_added.sql
CREATE TRIGGER ip_group_entities_removed AFTER DELETE ON ip_entity REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION ip_group_entities_removed(); -- schema/functions/ip_group_entities_removed.sql
CREATE TRIGGER ip_group_entity_moved AFTER UPDATE ON ip_entity FOR EACH ROW WHEN (old.group_id <> new.group_id) EXECUTE FUNCTION ip_group_entity_moved(); -- schema/functions/ip_group_entity_moved.sql

CREATE TABLE ip_free (
	entity_id bigint NOT NULL,
	group_id bigint NOT NULL,
	v4_first inet,
	v4_bits smallint,
	v6_first inet,
	v6_bits smallint,
	CONSTRAINT ip_free_pkey PRIMARY KEY (entity_id),
	CONSTRAINT ip_free_entity_id_fkey FOREIGN KEY (entity_id) REFERENCES ip_entity(id) ON DELETE CASCADE
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=10000);
CREATE INDEX ip_free_by_group ON ip_free (group_id, entity_id);
CREATE INDEX ip_free_by_group_and_address ON ip_free (group_id, COALESCE(v4_first, v6_first), entity_id);
CREATE INDEX ip_free_v4 ON ip_free (group_id, v4_first) INCLUDE (v4_bits) WHERE v4_first IS NOT NULL;
CREATE INDEX ip_free_v4_prefix ON ip_free (group_id, v4_bits, v4_first) WHERE v4_bits < 32;
CREATE INDEX ip_free_v6 ON ip_free (group_id, v6_first) INCLUDE (v6_bits) WHERE v6_first IS NOT NULL;
CREATE INDEX ip_free_v6_prefix ON ip_free (group_id, v6_bits, v6_first) WHERE v6_bits < 128;
CREATE TRIGGER ip_free_came AFTER INSERT ON ip_free REFERENCING NEW TABLE AS came FOR EACH STATEMENT EXECUTE FUNCTION ip_free_came(); -- schema/functions/ip_free_came.sql
CREATE TRIGGER ip_free_changed AFTER UPDATE ON ip_free FOR EACH ROW EXECUTE FUNCTION ip_free_changed(); -- schema/functions/ip_free_changed.sql
CREATE TRIGGER ip_free_went AFTER DELETE ON ip_free REFERENCING OLD TABLE AS went FOR EACH STATEMENT EXECUTE FUNCTION ip_free_went(); -- schema/functions/ip_free_went.sql

CREATE TABLE ip_free_chunk (
	group_id bigint NOT NULL,
	chunk cidr NOT NULL,
	first inet NOT NULL,
	bits smallint NOT NULL,
	CONSTRAINT ip_free_chunk_pkey PRIMARY KEY (group_id, chunk)
);
CREATE INDEX ip_free_chunk_by_bits ON ip_free_chunk (group_id, bits, chunk);

CREATE TABLE ip_free_count (
	group_id bigint NOT NULL,
	free bigint NOT NULL,
	CONSTRAINT ip_free_count_pkey PRIMARY KEY (group_id)
);

CREATE TABLE ip_free_delta (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	group_id bigint NOT NULL,
	v4_chunk cidr,
	v6_chunk cidr,
	free bigint NOT NULL,
	CONSTRAINT ip_free_delta_pkey PRIMARY KEY (id)
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000);
CREATE INDEX ip_free_delta_by_group ON ip_free_delta (group_id);

CREATE TABLE ip_group (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	version bigint NOT NULL DEFAULT 1,
	name text NOT NULL,
	billing_id text,
	reserved boolean NOT NULL,
	search text NOT NULL GENERATED ALWAYS AS (((E'\n' || lower(name)) || E'\n') || lower(COALESCE(billing_id, ''))) STORED,
	pxe_dhcp_server_type text GENERATED ALWAYS AS ('pxe/dhcp') STORED,
	pxe_dhcp_server_id bigint,
	CONSTRAINT ip_group_pkey PRIMARY KEY (id),
	CONSTRAINT ip_group__pxe_dhcp_server FOREIGN KEY (pxe_dhcp_server_type, pxe_dhcp_server_id) REFERENCES ref(type, id),
	CONSTRAINT ip_group__billing_id UNIQUE (billing_id),
	CONSTRAINT ip_group__name UNIQUE (name)
);
CREATE INDEX ip_group_by_dhcp_server ON ip_group (pxe_dhcp_server_id) WHERE pxe_dhcp_server_id IS NOT NULL;
CREATE INDEX ip_group_by_reserved ON ip_group (reserved, id);
CREATE INDEX ip_group_by_reserved_and_name ON ip_group (reserved, name, id);
CREATE INDEX ip_group_search ON ip_group USING gin (search gin_trgm_ops);

CREATE TABLE ip_group_count (
	group_id bigint NOT NULL,
	entities bigint NOT NULL,
	servers bigint NOT NULL,
	CONSTRAINT ip_group_count_pkey PRIMARY KEY (group_id)
);

CREATE TABLE ip_group_delta (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	group_id bigint NOT NULL,
	entities bigint NOT NULL,
	CONSTRAINT ip_group_delta_pkey PRIMARY KEY (id)
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000);
CREATE INDEX ip_group_delta_by_group ON ip_group_delta (group_id);

CREATE TABLE ip_group_server_count (
	group_id bigint NOT NULL,
	server_id bigint NOT NULL,
	entities bigint NOT NULL,
	CONSTRAINT ip_group_server_count_pkey PRIMARY KEY (group_id, server_id)
);

CREATE TABLE ip_group_server_delta (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	group_id bigint NOT NULL,
	server_id bigint NOT NULL,
	entities bigint NOT NULL,
	CONSTRAINT ip_group_server_delta_pkey PRIMARY KEY (id)
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000);
CREATE INDEX ip_group_server_delta_by_group ON ip_group_server_delta (group_id);

CREATE TABLE ip_held_count (
	group_id bigint NOT NULL,
	reserved bigint NOT NULL,
	quarantined bigint NOT NULL,
	CONSTRAINT ip_held_count_pkey PRIMARY KEY (group_id)
);

CREATE TABLE ip_held_delta (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	group_id bigint NOT NULL,
	reserved bigint NOT NULL,
	quarantined bigint NOT NULL,
	CONSTRAINT ip_held_delta_pkey PRIMARY KEY (id)
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=1000);
CREATE INDEX ip_held_delta_by_group ON ip_held_delta (group_id);

CREATE TABLE ip_owner_of_before (
	owner_id bigint NOT NULL,
	CONSTRAINT ip_owner_of_before_pkey PRIMARY KEY (owner_id)
);

CREATE TABLE port_speed (
	id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
	version bigint NOT NULL DEFAULT 1,
	name text NOT NULL,
	billing_id text,
	speed integer NOT NULL,
	search text NOT NULL GENERATED ALWAYS AS (((E'\n' || lower(name)) || E'\n') || lower(COALESCE(billing_id, ''))) STORED,
	CONSTRAINT port_speed_pkey PRIMARY KEY (id),
	CONSTRAINT port_speed__speed CHECK (speed > 0),
	CONSTRAINT port_speed__billing_id UNIQUE (billing_id),
	CONSTRAINT port_speed__name UNIQUE (name)
);
CREATE INDEX port_speed_by_billing_id ON port_speed (billing_id, id);
CREATE INDEX port_speed_by_name ON port_speed (name, id);
CREATE INDEX port_speed_by_speed ON port_speed (speed, id);
CREATE INDEX port_speed_search ON port_speed USING gin (search gin_trgm_ops);

CREATE TRIGGER ip_owner_renamed AFTER UPDATE ON ref FOR EACH ROW WHEN (new.type = 'client' AND NOT new.gone AND old.name <> new.name) EXECUTE FUNCTION ip_owner_renamed(); -- schema/functions/ip_owner_renamed.sql

-- VIEW field_value_view: schema/views/field_value_view.sql
--	id bigint
--	version bigint
--	field_id bigint
--	target_type text
--	target_id bigint
--	value text
--	name text

-- VIEW forward_gateway_view: schema/views/forward_gateway_view.sql
--	id bigint
--	version bigint
--	name text
--	hostname text
--	port_limit text
--	group_ids bigint[]
--	search text
--	groups jsonb

-- VIEW ip_entity_free: schema/views/ip_entity_free.sql
--	id bigint
--	group_id bigint
--	first_address inet
--	assigned boolean
--	owner_id bigint
--	owner_server_id bigint
--	owner_search text
--	name text
--	billing_id text
--	vlan integer
--	search text
--	v4_span int8range
--	v6_span numrange
--	v4_first inet
--	v4_last inet
--	v4_scope bigint
--	v6_first inet
--	v6_last inet
--	v6_scope bigint
--	owner_missing boolean
--	status text
--	owner_via_id bigint

-- VIEW ip_entity_held: schema/views/ip_entity_held.sql
--	id bigint
--	group_id bigint
--	first_address inet
--	assigned boolean
--	owner_id bigint
--	owner_server_id bigint
--	owner_search text
--	name text
--	billing_id text
--	vlan integer
--	search text
--	v4_span int8range
--	v6_span numrange
--	v4_first inet
--	v4_last inet
--	v4_scope bigint
--	v6_first inet
--	v6_last inet
--	v6_scope bigint
--	owner_missing boolean
--	released_until timestamp with time zone
--	status text
--	owner_via_id bigint

-- VIEW ip_entity_of_owner: schema/views/ip_entity_of_owner.sql
--	id bigint
--	owner_id bigint
--	owner_server_id bigint
--	group_id bigint
--	name text
--	vlan integer
--	owner_search text
--	billing_id text
--	search text
--	v4_span int8range
--	v6_span numrange
--	v4_first inet
--	v4_last inet
--	v4_scope bigint
--	v6_first inet
--	v6_last inet
--	v6_scope bigint
--	assigned boolean
--	owner_missing boolean
--	status text
--	first_address inet
--	owner_via_id bigint

-- VIEW ip_entity_view: schema/views/ip_entity_view.sql
--	id bigint
--	version bigint
--	name text
--	nickname text
--	billing_id text
--	vlan integer
--	full_ip text
--	search text
--	v4_span int8range
--	v6_span numrange
--	address text
--	gateway text
--	subnet_mask text
--	v6_address text
--	v6_gateway text
--	v4_address text
--	v4_full text
--	v4_gateway text
--	v4_range_end text
--	v4_subnet_mask text
--	v4_given_mask text
--	group_id bigint
--	group_name text
--	owner_id bigint
--	owner_name text
--	owner_server_id bigint
--	owner_server_name text
--	siblings_count bigint
--	owner_search text
--	v4_first inet
--	v4_last inet
--	v4_scope bigint
--	v6_first inet
--	v6_last inet
--	v6_scope bigint
--	v4_given_range_end text
--	first_address inet
--	assigned boolean
--	owner_missing boolean
--	status text
--	note text
--	available_at timestamp with time zone
--	owner_via_id bigint
--	owner_via_name text

-- VIEW ip_free_chunked: schema/views/ip_free_chunked.sql
--	group_id bigint
--	chunk cidr
--	first inet
--	bits smallint

-- VIEW ip_free_counted: schema/views/ip_free_counted.sql
--	group_id bigint
--	free bigint

-- VIEW ip_group_counted: schema/views/ip_group_counted.sql
--	group_id bigint
--	entities bigint
--	servers bigint

-- VIEW ip_group_server_counted: schema/views/ip_group_server_counted.sql
--	group_id bigint
--	server_id bigint
--	entities bigint

-- VIEW ip_group_view: schema/views/ip_group_view.sql
--	id bigint
--	version bigint
--	name text
--	billing_id text
--	reserved boolean
--	search text
--	entities_count bigint
--	servers_count bigint
--	servers_inventory bigint
--	pxe_dhcp_server_id bigint
--	pxe_dhcp_server_name text

-- VIEW ip_held_counted: schema/views/ip_held_counted.sql
--	group_id bigint
--	reserved bigint
--	quarantined bigint

-- VIEW ip_unassigned: schema/views/ip_unassigned.sql
--	entity_id bigint
--	group_id bigint
--	v4_first inet
--	v4_bits smallint
--	v6_first inet
--	v6_bits smallint
