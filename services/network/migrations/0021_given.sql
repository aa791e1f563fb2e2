-- +goose NO TRANSACTION
-- +goose Up
-- A reseller can give an IP entity that it owns to a sub client. The reseller and its link to the sub client then stand beside the owner.
ALTER TABLE ip_assignment ADD COLUMN IF NOT EXISTS via_id bigint, ADD COLUMN IF NOT EXISTS via_link bigint;

ALTER TABLE ip_assignment DROP CONSTRAINT IF EXISTS ip_assignment_given;
ALTER TABLE ip_assignment ADD CONSTRAINT ip_assignment_given CHECK (
	num_nonnulls(via_id, via_link) = 0 OR num_nonnulls(owner_id, via_id, via_link) = 3 AND via_id <> owner_id AND NOT owner_missing) NOT VALID;
ALTER TABLE ip_assignment VALIDATE CONSTRAINT ip_assignment_given;

-- An earlier try may have left half an index.
DROP INDEX IF EXISTS ip_assignment_by_via, ip_assignment_by_via_link;
CREATE INDEX CONCURRENTLY ip_assignment_by_via ON ip_assignment (via_id, entity_id) WHERE via_id IS NOT NULL;
CREATE INDEX CONCURRENTLY ip_assignment_by_via_link ON ip_assignment (via_link) WHERE via_link IS NOT NULL;
