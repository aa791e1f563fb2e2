-- +goose Up
-- A list that is filtered is sorted by name without reading all that the filter leaves.
CREATE INDEX ip_entity_by_group_and_name ON ip_entity (group_id, name, id);
CREATE INDEX ip_entity_by_vlan_and_name ON ip_entity (vlan, name, id) WHERE vlan IS NOT NULL;
CREATE INDEX ip_group_by_reserved ON ip_group (reserved, id);
CREATE INDEX ip_group_by_reserved_and_name ON ip_group (reserved, name, id);
