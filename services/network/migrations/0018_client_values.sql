-- +goose Up
-- Values of clients' fields that were written before targets had to be clients: of those that are none they go.
INSERT INTO ip_owner_of_before SELECT DISTINCT target_id FROM field_value WHERE target_type = 'client' ON CONFLICT DO NOTHING;
