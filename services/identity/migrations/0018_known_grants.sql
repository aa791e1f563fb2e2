-- +goose Up
-- The grants of the newest version that has run on this schema: package knowngrants. A permission that is new since this
-- migration needs no other one.
CREATE TABLE known_grant (name text PRIMARY KEY); -- such as "network.entities write"

INSERT INTO known_grant (name) VALUES
	('network.entities read'), ('network.entities write'), ('network.forward read'), ('network.forward write'),
	('network.groups read'), ('network.groups write'), ('network.switches read'), ('network.switches write'),
	('pxe.installs read'), ('pxe.installs write'), ('pxe.settings read'), ('pxe.settings write'),
	('server.in_inventory read'), ('server.in_inventory write'), ('server.in_use read'), ('server.in_use write'),
	('server.settings read'), ('server.settings write'), ('system.emails read'), ('system.emails write'),
	('system.integrations read'), ('system.integrations write'), ('system.logs read'), ('system.logs write'),
	('system.settings read'), ('system.settings write'), ('system.theme read'), ('system.theme write'),
	('users.admins read'), ('users.admins write'), ('users.clients read'), ('users.clients write');
