package events

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/pg"
)

// ErrRestored says that a schema was restored from a dump, and not taken up since: see TakeUp.
var ErrRestored = errors.New("the schema was restored from a backup: the command restored has to take it up before it serves")

// Intact fails with ErrRestored where the schema is a restored one.
func Intact(ctx context.Context, q pg.Querier) error {
	var intact bool
	if err := q.QueryRow(ctx, "SELECT relation = 'sequencer'::regclass FROM sequencer").Scan(&intact); err != nil {
		return fmt.Errorf("look whether the schema was restored: %w", err)
	}
	if !intact {
		return ErrRestored
	}
	return nil
}

// leap is by how much ids and numbers are raised above all that are known of: others may have been given, of which nobody
// here knows any more.
const leap = 1_000_000

// Known is what the other schemas know of one that was restored: what was given there, and is not to be given again.
type Known struct {
	Histories []string // of its that they have applied changes of
	Seq       int64    // the highest number of a change
	ID        int64    // the highest id of an item
}

// Lost is what a schema lacks that was restored.
type Lost struct {
	After int64 // the last number of a change that it has
	Began int64 // the numbers of its changes from now on are higher
}

// TakeUp begins another history of a schema that was restored: it gives no id and no number again that was given, and
// keeps no answer for who sends a request again. Its readers go on by themselves.
func TakeUp(ctx context.Context, db *pg.DB, known Known) (lost Lost, err error) {
	err = db.InTx(ctx, func(tx *pg.Tx) error {
		if err := tx.QueryRow(ctx, "SELECT last FROM sequencer FOR UPDATE").Scan(&lost.After); err != nil {
			return fmt.Errorf("hold the numbers: %w", err)
		}
		lost.Began = max(lost.After, known.Seq) + leap
		for _, step := range []struct {
			sql  string
			args []any
		}{
			{"UPDATE history SET ended = $1 WHERE ended IS NULL", []any{lost.After}},
			// Histories that began after the backup.
			{"INSERT INTO history (uuid, ended) SELECT unnest($1::uuid[]), $2 ON CONFLICT DO NOTHING", []any{known.Histories, lost.After}},
			{"INSERT INTO history (began) VALUES ($1)", []any{lost.Began}},
			{"UPDATE sequencer SET last = $1, relation = 'sequencer'::regclass", []any{lost.Began}},
			{"SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, greatest(coalesce(last_value, 0), $1) + $2) FROM pg_sequences WHERE schemaname = current_schema()", []any{known.ID, leap}},
			{"DELETE FROM idempotency", nil},
		} {
			if _, err := tx.Exec(ctx, step.sql, step.args...); err != nil {
				return err
			}
		}
		tx.Record(pg.Record{Kind: "history", Action: "restored", After: map[string]int64{"lost_after": lost.After, "began": lost.Began}})
		return nil
	})
	return lost, wrap("take up the restored schema", err)
}

// KnownOf is what a schema knows of a source.
func KnownOf(ctx context.Context, q pg.Querier, source string) (k Known, err error) {
	var history *string
	err = q.QueryRow(ctx, "SELECT history::text, seq FROM change_cursor WHERE source = $1", source).Scan(&history, &k.Seq)
	if errors.Is(err, pgx.ErrNoRows) {
		return k, nil
	}
	if history != nil {
		k.Histories = []string{*history}
	}
	return k, wrap("read the cursor of "+source, err)
}

// TakenUp tells a consumer that its source was restored from a backup and taken up again.
type TakenUp struct {
	Source  string
	After   int64 // the last change of before that the source has
	Applied int64 // the last one that was applied here, of which the source has forgotten those after After
	Began   int64 // the numbers go on behind this one
}

// next is the history that followed another one.
type next struct {
	History string `json:"history"`
	Ended   int64  `json:"ended"` // the last number of the one before that there is
	Began   int64  `json:"began"`
}

// succession is what followed a history; nil: it goes on, or nobody knows of it.
func succession(ctx context.Context, q pg.Querier, history string) (*next, error) {
	var n next
	err := q.QueryRow(ctx, `SELECT later.uuid::text, earlier.ended, later.began
		FROM history earlier JOIN history later ON later.began > coalesce(earlier.began, earlier.ended)
		WHERE earlier.uuid::text = $1 AND earlier.ended IS NOT NULL ORDER BY later.began LIMIT 1`, history).Scan(&n.History, &n.Ended, &n.Began)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what followed history %s: %w", history, err)
	}
	return &n, nil
}

// takeUp goes on with the history that followed the one of the cursor.
func (c *Consumer) takeUp(ctx context.Context, db *pg.DB, at cursor, n *next) error {
	to := cursor{seq: n.Began, history: n.History}
	return wrap("go on behind the restored "+c.Source, c.move(ctx, db, at, to, func(ctx context.Context, tx *pg.Tx) error {
		return c.TakenUp(ctx, tx, TakenUp{c.Source, n.Ended, at.seq, n.Began})
	}))
}
