-- +goose Up
INSERT INTO setting (id, group_id, slug, name, type, validator, default_value)
SELECT (SELECT max(id) FROM setting) + 1, 2, 'security.verify_passkeys', 'Have security keys and passkeys ask for a PIN or a finger', 'Checkbox', NULL, '0';
