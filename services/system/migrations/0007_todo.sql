-- +goose Up
CREATE TABLE todo (
	id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	slug         text NOT NULL UNIQUE,
	done_by      text NOT NULL, -- the type of the change that completes it, as the log has it
	completed_at timestamptz
);
CREATE INDEX todo_open ON todo (done_by) WHERE completed_at IS NULL;

INSERT INTO todo (slug, done_by) VALUES
	('network.group.add', 'group.created'),
	('network.entity.add', 'entity.created'),
	('hardware.server.part.add', 'part.created'),
	('pxe.dhcp.add', 'pxe.dhcp.created'),
	('system.integration.add', 'integration.created');

UPDATE todo SET completed_at = (SELECT at FROM log WHERE type = done_by ORDER BY at, id LIMIT 1);
