-- +goose Up
-- An ISO, of which file servers hold the files in its folder, and the image itself as <folder>.iso.
CREATE TABLE iso (
	id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version    bigint NOT NULL DEFAULT 1,
	name       text NOT NULL CONSTRAINT iso__name UNIQUE,
	folder     text NOT NULL CONSTRAINT iso__folder UNIQUE,
	url        bytea, -- sealed
	wanted     text,  -- the SHA-256 that it is to have
	status     text NOT NULL DEFAULT 'queued',
	error      text,
	import     bigint NOT NULL DEFAULT 1, -- counts imports: an earlier one changes nothing any more
	draft_id   bigint REFERENCES stored_file ON DELETE SET NULL, -- what is loaded
	validator  text,   -- of that: what its server calls this version of it
	expected   bigint, -- how long it is to become
	created_at timestamptz NOT NULL DEFAULT now(),
	search     text NOT NULL GENERATED ALWAYS AS (E'\n' || lower(name) || E'\n' || lower(folder)) STORED
);
CREATE INDEX iso_search ON iso USING gin (search gin_trgm_ops);
CREATE INDEX iso_by_name ON iso (name, id);
CREATE INDEX iso_by_created_at ON iso (created_at, id);
CREATE INDEX iso_by_draft ON iso (draft_id);

CREATE TABLE iso_edition (
	id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	version     bigint NOT NULL DEFAULT 1,
	iso_id      bigint NOT NULL REFERENCES iso ON DELETE CASCADE,
	number      bigint NOT NULL, -- in the image
	name        text NOT NULL,
	is_enabled  boolean NOT NULL DEFAULT false,
	license_key bytea, -- sealed
	key_end     text,  -- its last group
	UNIQUE (iso_id, name)
);

ALTER TABLE profile ADD iso_id bigint CONSTRAINT profile__iso__id REFERENCES iso, ADD iso_edition text;
CREATE INDEX profile_by_iso ON profile (iso_id);

CREATE VIEW iso_view AS
SELECT i.id, i.version, i.name, i.folder, i.status, i.error, i.created_at, i.search, i.wanted,
	CASE WHEN i.status = 'ready' THEN 100 WHEN i.status = 'extracting' THEN 99 WHEN d.size > 0 AND i.expected > 0 THEN least(98, 98 * d.size / i.expected) ELSE 0 END::integer AS progress,
	f.size, f.sha256
FROM iso i
LEFT JOIN stored_file d ON d.id = i.draft_id
LEFT JOIN stored_file f ON f.path = i.folder || '.iso';

CREATE VIEW iso_edition_view AS
SELECT id, version, iso_id, number, name, is_enabled, key_end, '*****-*****-*****-*****-' || key_end AS key FROM iso_edition;

-- An edition that clients see is there once more for them, without its key.
CREATE VIEW iso_edition_seen AS
SELECT id, version, iso_id, number, name, is_enabled, key, false AS for_client FROM iso_edition_view
UNION ALL
SELECT id, version, iso_id, number, name, is_enabled, NULL, true FROM iso_edition e
WHERE is_enabled AND EXISTS (SELECT FROM profile p WHERE p.iso_id = e.iso_id AND p.access_client);

DROP VIEW profile_view;
CREATE VIEW profile_view AS
SELECT p.id, p.version, p.name, p.billing_id, p.access_client, p.boot_script_id, b.name AS boot_script_name, p.preseed_id, s.name AS preseed_name,
	p.email_template_id, r.name AS email_template_name, coalesce(p.shell_after, '{}') AS shell_after, coalesce(p.shell_during, '{}') AS shell_during,
	p.iso_id, i.name AS iso_name, p.iso_edition,
	coalesce(p.driver_ids, '{}') AS driver_ids, (SELECT coalesce(jsonb_agg(jsonb_build_object('id', d.id, 'name', d.name) ORDER BY d.id), '[]') FROM driver d WHERE d.id = ANY (p.driver_ids)) AS drivers,
	p.time_until_marked_failed, p.search
FROM profile p
JOIN boot_script b ON b.id = p.boot_script_id
LEFT JOIN preseed s ON s.id = p.preseed_id
LEFT JOIN iso i ON i.id = p.iso_id
LEFT JOIN ref r ON r.type = p.email_template_type AND r.id = p.email_template_id;
