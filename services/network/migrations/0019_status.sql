-- +goose NO TRANSACTION
-- +goose Up
-- A row of ip_assignment says why an entity is not available: it is assigned to an owner or, without one, it is reserved or
-- quarantined. So the primary key gives an entity at most one status, and what is reserved or quarantined is not in ip_free.
--
-- An entity is quarantined until available_at. One without a row, or with a row whose available_at has passed, is available.
ALTER TABLE ip_assignment ADD COLUMN IF NOT EXISTS note text, ADD COLUMN IF NOT EXISTS available_at timestamptz;
ALTER TABLE ip_assignment ALTER COLUMN owner_id DROP NOT NULL;

ALTER TABLE ip_assignment DROP CONSTRAINT IF EXISTS ip_assignment_status;
ALTER TABLE ip_assignment ADD CONSTRAINT ip_assignment_status CHECK (CASE
	WHEN owner_id IS NOT NULL THEN note IS NULL AND available_at IS NULL -- assigned
	ELSE num_nonnulls(owner_name, server_id, server_name) = 0 AND NOT owner_missing AND num_nonnulls(note, available_at) <= 1 -- reserved or quarantined
END) NOT VALID;
ALTER TABLE ip_assignment VALIDATE CONSTRAINT ip_assignment_status;

-- An earlier try may have left half an index.
DROP INDEX IF EXISTS ip_assignment_reserved, ip_assignment_reserved_by_group, ip_assignment_reserved_by_name, ip_assignment_by_available_at;
CREATE INDEX CONCURRENTLY ip_assignment_reserved ON ip_assignment (entity_id) WHERE owner_id IS NULL AND available_at IS NULL;
CREATE INDEX CONCURRENTLY ip_assignment_reserved_by_group ON ip_assignment (group_id, entity_id) WHERE owner_id IS NULL AND available_at IS NULL;
CREATE INDEX CONCURRENTLY ip_assignment_reserved_by_name ON ip_assignment (entity_name, entity_id) WHERE owner_id IS NULL AND available_at IS NULL;
CREATE INDEX CONCURRENTLY ip_assignment_by_available_at ON ip_assignment (available_at, group_id, entity_id) WHERE available_at IS NOT NULL;
