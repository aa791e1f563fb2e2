package product

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/services/system"
)

// leap is by how much ids and numbers are raised above all that are known of: others may have been given, of which nobody
// here knows any more.
const leap = 1_000_000

// history is where a restored schema's changes end, and go on.
type history struct {
	lostAfter int64           // the last number of a change that it has
	began     int64           // the numbers of its changes from now on are higher
	highestID int64           // of the items that any schema knows of
	others    []string        // histories of its that others know, and that it may not
	kept      map[int64]int64 // by their id: numbers of changes that it has, and that got them after the backup only
}

// historyOf finds out where the history of a restored schema is to go on.
func historyOf(ctx context.Context, schemas map[string]*pg.DB, name string) (*history, error) {
	var h history
	if err := schemas[name].QueryRow(ctx, "SELECT last FROM sequencer").Scan(&h.lostAfter); err != nil {
		return nil, fmt.Errorf("read the last number: %w", err)
	}
	highest := h.lostAfter
	for reader, db := range schemas {
		var of []string
		var seq int64
		err := db.QueryRow(
			ctx, "SELECT array_remove(array_agg(history::text), NULL), coalesce(max(seq), 0) FROM consumer WHERE source = $1", name,
		).
			Scan(&of, &seq)
		if err != nil {
			return nil, fmt.Errorf("read how far %s has read: %w", reader, err)
		}
		highest, h.others = max(highest, seq), append(h.others, of...)
		id, err := highestID(ctx, db, reader)
		if err != nil {
			return nil, err
		}
		h.highestID = max(h.highestID, id)
	}
	h.began = highest + leap
	return &h, h.keep(ctx, schemas[name], schemas[system.Name], name)
}

// knowIDs are where a schema knows ids of items of others, and tokens: what it refers to, what its changes are of and who made them.
const knowIDs = `SELECT max(greatest(id, closing)) FROM ref
	UNION ALL SELECT max((target->>'id')::bigint) FROM change, jsonb_array_elements(targets) target WHERE target->>'type' NOT LIKE 'event/%'
	UNION ALL SELECT max(greatest(actor_key, substring(actor_url from '[0-9]+$')::bigint)) FROM change`

// logKnowsIDs are where the log knows ids.
const logKnowsIDs = ` UNION ALL SELECT max(target_id) FROM log_target WHERE type NOT LIKE 'event/%'
	UNION ALL SELECT max(greatest(user_key, substring(user_url from '[0-9]+$')::bigint)) FROM log`

// highestID is the highest one that a schema knows of an item of another.
func highestID(ctx context.Context, db *pg.DB, schema string) (id int64, err error) {
	query := knowIDs
	if schema == system.Name {
		query += logKnowsIDs
	}
	if err := db.QueryRow(ctx, "SELECT coalesce(max(id), 0) FROM ("+query+") known (id)").Scan(&id); err != nil {
		return 0, fmt.Errorf("look for the highest id in %s: %w", schema, err)
	}
	return id, nil
}

// mostUnnumbered bounds how many changes are looked for that had no number yet when the backup was made.
const mostUnnumbered = 1_000_000

// keep finds the numbers that changes got which had none when the backup was made: the log may have them already.
func (h *history) keep(ctx context.Context, db, log *pg.DB, name string) error {
	rows, err := db.Query(ctx, "SELECT id, at, type, targets FROM change WHERE seq IS NULL ORDER BY id LIMIT $1", mostUnnumbered)
	if err != nil {
		return fmt.Errorf("read changes without a number: %w", err)
	}
	type unnumbered struct {
		ID      int64
		At      time.Time
		Type    string
		Targets []byte
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[unnumbered])
	if err != nil {
		return fmt.Errorf("read changes without a number: %w", err)
	}
	h.kept = map[int64]int64{}
	given := []int64{}
	for _, c := range all {
		var seq int64
		err := log.QueryRow(ctx, "SELECT seq FROM log WHERE source = $1 AND seq > $2 AND at = $3 AND type = $4 AND targets::jsonb = $5 "+
			"AND seq <> ALL ($6) ORDER BY seq LIMIT 1",
			name, h.lostAfter, c.At, c.Type, c.Targets, given).
			Scan(&seq)
		if errors.Is(err, pgx.ErrNoRows) { // nobody has heard of it: it will get a number
			continue
		}
		if err != nil {
			return fmt.Errorf("look for a change in the log: %w", err)
		}
		h.kept[c.ID], given = seq, append(given, seq)
	}
	return nil
}

// forget are the statements that end what counted for a while, or was on its way, when the backup was made: kept answers,
// which requests sent again would get; deletions that were begun; messages, which their receivers have taken since; jobs,
// which have been done since: an operator sees them, and can have one done again; sessions, which may have been ended; codes, and
// recovery codes, which may have been used; what an authority asks gateways for; uploads, of which a part may be gone.
var forget = []string{
	"DELETE FROM idempotency",
	"DELETE FROM closing",
	"DELETE FROM message",
	`DO $$ BEGIN IF to_regclass('session_value') IS NOT NULL THEN
		DELETE FROM api_key WHERE kind <> 'lasting';
		DELETE FROM session_value;
		DELETE FROM unknown_name;
		DELETE FROM acting_logged;
		DELETE FROM account_mail;
	END IF;
	IF to_regclass('password_reset') IS NOT NULL THEN
		DELETE FROM password_reset;
		DELETE FROM sso_code;
	END IF;
	IF to_regclass('verify_code') IS NOT NULL THEN
		DELETE FROM verify_code;
		DELETE FROM recovery_code;
	END IF;
	IF to_regclass('openid_login') IS NOT NULL THEN
		DELETE FROM openid_login;
	END IF;
	IF to_regclass('attempt') IS NOT NULL THEN
		DELETE FROM attempt;
	END IF; END $$`,
	"DO $$ BEGIN IF to_regclass('file_sync') IS NOT NULL THEN DELETE FROM file_sync; END IF; END $$",
	"DO $$ BEGIN IF to_regclass('driver_upload') IS NOT NULL THEN DELETE FROM driver_upload; END IF; END $$",
	"DO $$ BEGIN IF to_regclass('acme_challenge') IS NOT NULL THEN DELETE FROM acme_challenge; END IF; END $$",
	`DO $$ BEGIN IF to_regclass('iso') IS NOT NULL THEN
		UPDATE iso SET status = 'failed', error = 'its import was under way when the backup was made' WHERE status NOT IN ('ready', 'failed');
	END IF; END $$`,
	`DO $$ BEGIN IF to_regclass('email_message') IS NOT NULL THEN
		UPDATE email_message SET status = 'failed', error = 'it was being sent when the backup was made' WHERE status = 'queued';
	END IF; END $$`,
	`DO $$ BEGIN IF to_regclass('install') IS NOT NULL THEN
		UPDATE install SET status = 'failed', error = 'It was under way when the backup was made.', finished_at = now(), password = NULL, token = NULL, client_email = NULL,
			version = version + 1, revision = nextval('install_revision')
			WHERE status IN ('waiting', 'booting', 'installing');
		DELETE FROM discovery;
	END IF; END $$`,
	"UPDATE river_job SET state = 'cancelled', finalized_at = now() WHERE finalized_at IS NULL",
}

// begin begins it in the restored schema, which gives no id and no number again that was given, and forgets what was of the
// moment. Its readers go on by themselves.
func (h *history) begin(ctx context.Context, tx *pg.Tx) error {
	if _, err := tx.Exec(ctx, "SELECT FROM sequencer FOR UPDATE"); err != nil {
		return fmt.Errorf("hold the numbers: %w", err)
	}
	for id, seq := range h.kept {
		if _, err := tx.Exec(ctx, "UPDATE change SET seq = $2 WHERE id = $1", id, seq); err != nil {
			return fmt.Errorf("give a change its number again: %w", err)
		}
	}
	for _, step := range []struct {
		sql  string
		args []any
	}{
		{"UPDATE history SET ended = $1 WHERE ended IS NULL", []any{h.lostAfter}},
		// Histories that began after the backup.
		{"INSERT INTO history (uuid, ended) SELECT unnest($1::uuid[]), $2 ON CONFLICT DO NOTHING", []any{h.others, h.lostAfter}},
		{"INSERT INTO history (began) VALUES ($1)", []any{h.began}},
		{"UPDATE sequencer SET last = $1, relation = 'sequencer'::regclass", []any{h.began}},
		{"SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, greatest(coalesce(last_value, 0), $1) + $2) " +
			"FROM pg_sequences WHERE schemaname = current_schema()", []any{h.highestID, leap}},
		{"DROP TABLE IF EXISTS lost", nil},
	} {
		if _, err := tx.Exec(ctx, step.sql, step.args...); err != nil {
			return err
		}
	}
	for _, statement := range forget {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return fmt.Errorf("forget what was of the moment: %w", err)
		}
	}
	tx.Record(pg.Record{Kind: "history", Action: "restored", After: map[string]int64{"lost_after": h.lostAfter, "began": h.began}})
	return nil
}
