-- +goose Up
-- A schema that is restored from a backup forgets changes that others have applied, and gives their numbers to other
-- changes. Each change has an id of its own, so that this is found out. NULL: an older program wrote it.
ALTER TABLE change ADD uuid uuid;
ALTER TABLE change ALTER uuid SET DEFAULT gen_random_uuid();

-- Which history of the service the numbers are of: another one once the service is taken up after it was restored.
ALTER TABLE sequencer ADD history uuid NOT NULL DEFAULT gen_random_uuid();

-- What was applied last, and of which history. An older program moves seq alone: so the change has its number, too.
ALTER TABLE change_cursor ADD history uuid, ADD change uuid, ADD change_seq bigint;
