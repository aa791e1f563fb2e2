-- +goose Up
-- Who allocates in a group holds one slot of the group's stripe; who must know what is left holds all of them. A row lock
-- that is shared would not do: whoever waits for it alone waits as long as others come and share it.
CREATE TABLE allocating (
	stripe smallint, -- the group's id modulo 32
	slot   smallint,
	PRIMARY KEY (stripe, slot)
);
INSERT INTO allocating SELECT stripe, slot FROM generate_series(0, 31) stripe, generate_series(0, 31) slot;

-- Who folds counts holds its row.
CREATE TABLE folding (one boolean PRIMARY KEY DEFAULT true CHECK (one));
INSERT INTO folding DEFAULT VALUES;
