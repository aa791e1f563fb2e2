-- +goose Up
INSERT INTO setting (id, group_id, slug, name, type, validator, default_value)
SELECT (SELECT max(id) FROM setting) + 1, 2, 'security.verify_admins', 'Let admins sign in with a second factor alone', 'Checkbox', NULL, '0';

INSERT INTO todo (slug, done_by) VALUES ('auth.verify.add', 'auth.verify.auth.verified');
