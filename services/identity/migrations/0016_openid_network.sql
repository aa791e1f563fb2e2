-- +goose Up
-- From where a sign-in began: of one network's those end first that it has too many of.
ALTER TABLE openid_login ADD COLUMN network cidr;
CREATE INDEX openid_login_network ON openid_login (network, id);
