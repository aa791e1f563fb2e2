-- +goose Up
-- A dump of before 0007 says nothing of itself, and 0007 takes what it makes for intact. But pg_dump has tables made in the
-- order of their names, and 0003 made sequencer before ref. Where 0007 was done long ago, or the schema was taken up since,
-- it tells already.
UPDATE sequencer SET relation = 0
WHERE 'sequencer'::regclass::oid > 'ref'::regclass::oid
	AND EXISTS (SELECT FROM migration_shared WHERE version_id = 7 AND tstamp > localtimestamp - interval '10 minutes')
	AND NOT EXISTS (SELECT FROM history WHERE ended IS NOT NULL);
