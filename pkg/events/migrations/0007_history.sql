-- +goose Up
-- A schema that is restored from a backup forgets changes that others have applied, and gives their numbers to other
-- changes. Each change has an id of its own, so that this is found out. NULL: an older program wrote it.
ALTER TABLE change ADD uuid uuid;
ALTER TABLE change ALTER uuid SET DEFAULT gen_random_uuid();

-- Which histories of the service there were: another one begins when it is taken up after it was restored.
CREATE TABLE history (
	uuid  uuid PRIMARY KEY DEFAULT gen_random_uuid(),
	began bigint, -- its numbers are higher; NULL: it began after the backup, and there is nothing of it here
	ended bigint  -- the last of its numbers that was there when the next one began; NULL: it goes on
);

CREATE UNIQUE INDEX history_now ON history ((true)) WHERE ended IS NULL;
INSERT INTO history (began) VALUES (0);

-- A table that is restored from a dump is another relation than the one that was dumped.
ALTER TABLE sequencer ADD relation oid NOT NULL DEFAULT 0;
UPDATE sequencer SET relation = 'sequencer'::regclass;

-- What was applied last, and of which history. An older program moves seq alone: so the change has its number, too.
ALTER TABLE change_cursor ADD history uuid, ADD change uuid, ADD change_seq bigint;
