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

// leap is added to the largest id and number that any schema knows. Callers outside may have seen larger ones, which no schema
// knows any more.
const leap = 1_000_000

// history is the point where a restored schema's changes end, and the point where they continue.
type history struct {
	lostAfter int64           // the number of its last change
	began     int64           // its next changes get larger numbers than this
	maxID     int64           // the largest id of an item in any schema
	others    []string        // the histories of the schema that other schemas have read, which it may lack itself
	kept      map[int64]int64 // the numbers, by the change's id, of changes that were numbered after the backup
}

// findHistory finds out where the history of a restored schema continues.
func findHistory(ctx context.Context, schemas map[string]*pg.DB, name string) (*history, error) {
	var h history
	if err := schemas[name].QueryRow(ctx, "SELECT last FROM sequencer").Scan(&h.lostAfter); err != nil {
		return nil, fmt.Errorf("read the last number: %w", err)
	}
	maxSeq := h.lostAfter
	for reader, db := range schemas {
		var histories []string
		var seq int64
		err := db.QueryRow(
			ctx, "SELECT array_remove(array_agg(history::text), NULL), coalesce(max(seq), 0) FROM consumer WHERE source = $1", name,
		).
			Scan(&histories, &seq)
		if err != nil {
			return nil, fmt.Errorf("read which changes %s has read: %w", reader, err)
		}
		maxSeq, h.others = max(maxSeq, seq), append(h.others, histories...)
		id, err := maxForeignID(ctx, db, reader)
		if err != nil {
			return nil, err
		}
		h.maxID = max(h.maxID, id)
	}
	h.began = maxSeq + leap
	return &h, h.findNumbers(ctx, schemas[name], schemas[system.Name], name)
}

// foreignIDs selects the largest ids that a schema refers to: of other services' items, of deletion leases, of the targets of
// its changes, and of the keys and accounts that made them.
const foreignIDs = `SELECT max(greatest(id, closing)) FROM ref
	UNION ALL SELECT max((target->>'id')::bigint) FROM change, jsonb_array_elements(targets) target WHERE target->>'type' NOT LIKE 'event/%'
	UNION ALL SELECT max(greatest(actor_key, substring(actor_url from '[0-9]+$')::bigint)) FROM change`

// logIDs selects the largest ids that the log knows, too.
const logIDs = ` UNION ALL SELECT max(target_id) FROM log_target WHERE type NOT LIKE 'event/%'
	UNION ALL SELECT max(greatest(user_key, substring(user_url from '[0-9]+$')::bigint)) FROM log`

// maxForeignID returns the largest foreign id that the schema refers to.
func maxForeignID(ctx context.Context, db *pg.DB, schema string) (id int64, err error) {
	query := foreignIDs
	if schema == system.Name {
		query += logIDs
	}
	if err := db.QueryRow(ctx, "SELECT coalesce(max(id), 0) FROM ("+query+") known (id)").Scan(&id); err != nil {
		return 0, fmt.Errorf("find the largest id in %s: %w", schema, err)
	}
	return id, nil
}

// maxUnnumbered bounds how many changes without a number findNumbers reads.
const maxUnnumbered = 1_000_000

// findNumbers finds the numbers of changes that had none when the backup was made. The log may have them under a number, which
// they have to keep.
func (h *history) findNumbers(ctx context.Context, db, log *pg.DB, name string) error {
	rows, err := db.Query(ctx, "SELECT id, at, type, targets FROM change WHERE seq IS NULL ORDER BY id LIMIT $1", maxUnnumbered)
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
	used := []int64{}
	for _, c := range all {
		var seq int64
		err := log.QueryRow(ctx, "SELECT seq FROM log WHERE source = $1 AND seq > $2 AND at = $3 AND type = $4 AND targets::jsonb = $5 "+
			"AND seq <> ALL ($6) ORDER BY seq LIMIT 1",
			name, h.lostAfter, c.At, c.Type, c.Targets, used).
			Scan(&seq)
		if errors.Is(err, pgx.ErrNoRows) { // no reader has seen it, so the sequencer may number it
			continue
		}
		if err != nil {
			return fmt.Errorf("find a change in the log: %w", err)
		}
		h.kept[c.ID], used = seq, append(used, seq)
	}
	return nil
}

// deleteTemporary are the statements that end whatever counted only for a while when the backup was made:
//   - Stored responses to requests that may be sent again.
//   - Deletions that had begun.
//   - Messages, because their receivers have them.
//   - Jobs, because they ran after the backup. An operator sees them as cancelled, and can retry one.
//   - Sessions, codes and recovery codes, because they may have been ended or used since.
//   - Challenges of a certificate authority.
//   - Uploads, because a part of their file may be missing.
var deleteTemporary = []string{
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
	IF to_regclass('failed_login') IS NOT NULL THEN
		DELETE FROM failed_login;
	END IF;
	IF to_regclass('adoption') IS NOT NULL THEN
		DELETE FROM adoption;
	END IF;
	IF to_regclass('attempt') IS NOT NULL THEN
		DELETE FROM attempt;
	END IF; END $$`,
	"DO $$ BEGIN IF to_regclass('file_sync') IS NOT NULL THEN DELETE FROM file_sync; END IF; END $$",
	"DO $$ BEGIN IF to_regclass('driver_upload') IS NOT NULL THEN DELETE FROM driver_upload; END IF; END $$",
	"DO $$ BEGIN IF to_regclass('acme_challenge') IS NOT NULL THEN DELETE FROM acme_challenge; END IF; END $$",
	`DO $$ BEGIN IF to_regclass('iso') IS NOT NULL THEN
		UPDATE iso SET status = 'failed', error = 'the import was in progress when the backup was made; start it again' WHERE status NOT IN ('ready', 'failed');
	END IF; END $$`,
	`DO $$ BEGIN IF to_regclass('email_message') IS NOT NULL THEN
		UPDATE email_message SET status = 'failed', error = 'it was in progress when the backup was made, and may have been sent' WHERE status = 'queued';
	END IF; END $$`,
	`DO $$ BEGIN IF to_regclass('install') IS NOT NULL THEN
		UPDATE install SET status = 'failed', error = 'The install was in progress when the backup was made.', finished_at = now(), password = NULL, token = NULL, client_email = NULL,
			version = version + 1, revision = nextval('install_revision')
			WHERE status IN ('waiting', 'booting', 'installing');
		DELETE FROM discovery;
	END IF; END $$`,
	"UPDATE river_job SET state = 'cancelled', finalized_at = now() WHERE finalized_at IS NULL",
}

// begin begins the new history in the restored schema: no id and no number is used twice, and temporary data is deleted. Readers
// notice the new history by themselves.
func (h *history) begin(ctx context.Context, tx *pg.Tx) error {
	if _, err := tx.Exec(ctx, "SELECT FROM sequencer FOR UPDATE"); err != nil {
		return fmt.Errorf("lock the sequencer: %w", err)
	}
	for id, seq := range h.kept {
		if _, err := tx.Exec(ctx, "UPDATE change SET seq = $2 WHERE id = $1", id, seq); err != nil {
			return fmt.Errorf("set a change's number: %w", err)
		}
	}
	for _, step := range []struct {
		sql  string
		args []any
	}{
		{"UPDATE history SET ended = $1 WHERE ended IS NULL", []any{h.lostAfter}},
		// Histories that began after the backup, so that the schema lacks them.
		{"INSERT INTO history (uuid, ended) SELECT unnest($1::uuid[]), $2 ON CONFLICT DO NOTHING", []any{h.others, h.lostAfter}},
		{"INSERT INTO history (began) VALUES ($1)", []any{h.began}},
		{"UPDATE sequencer SET last = $1, relation = 'sequencer'::regclass", []any{h.began}},
		{"SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, greatest(coalesce(last_value, 0), $1) + $2) " +
			"FROM pg_sequences WHERE schemaname = current_schema()", []any{h.maxID, leap}},
		{"DROP TABLE IF EXISTS lost", nil},
	} {
		if _, err := tx.Exec(ctx, step.sql, step.args...); err != nil {
			return err
		}
	}
	for _, statement := range deleteTemporary {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return fmt.Errorf("delete temporary data: %w", err)
		}
	}
	tx.Record(pg.Record{Kind: "history", Action: "restored", After: map[string]int64{"lost_after": h.lostAfter, "began": h.began}})
	return nil
}
