-- +goose Up
ALTER TABLE install
	ADD by_client boolean NOT NULL DEFAULT false, -- the client asked for it
	ADD owner_left boolean NOT NULL DEFAULT false; -- the IP entity has passed to another owner since
UPDATE install SET owner_left = true WHERE address_left;
