package audit

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// cutBatch is how many items are cut at a time.
const cutBatch = 10_000

// cutRecord is what stands in the record of a cut.
type cutRecord struct {
	Items int64 `json:"items"`
	Last  int64 `json:"last"`
}

// Cut removes the items at the log's beginning that are older than this, and leaves signed checkpoints in their place.
func (l *Log) Cut(ctx context.Context, db *pg.DB, older time.Time) error {
	for {
		var cut int64
		err := db.InTx(ctx, func(tx *pg.Tx) (err error) {
			if cut, err = l.cut(ctx, tx, older); cut == 0 {
				tx.Unrecorded("nothing is old enough")
			}
			return err
		})
		if err != nil || cut < cutBatch {
			return err
		}
	}
}

// cut cuts what it has verified, and what comes next to it, too: a time that was altered, or an item that was put there,
// does not get under a checkpoint.
func (l *Log) cut(ctx context.Context, tx *pg.Tx, older time.Time) (cut int64, err error) {
	h, err := l.lockHead(ctx, tx)
	if err != nil {
		return 0, err
	}
	last, err := findLastExpired(ctx, tx, older)
	if err != nil || last == 0 {
		return 0, err
	}
	w := l.newVerifier(tx)
	if err := w.verifyCheckpoints(ctx, &h); err != nil {
		return 0, err
	}
	if last = w.alignToRange(last, true); last < w.first {
		return 0, nil
	}
	next := w.alignToRange(last+1, false)
	if err := w.verifyTo(ctx, last); err != nil {
		return 0, err
	}
	c := checkpoint{id: w.id, mac: w.mac, at: time.Now().Truncate(time.Microsecond), seqs: maps.Clone(w.seqs)}
	if last < h.id {
		err = w.verifyTo(ctx, next)
	} else {
		err = w.verifyEnd(ctx, &h)
	}
	if err != nil {
		return 0, err
	}
	c.signature = l.signer().Sign(c.message(h.checkpoint))
	_, err = tx.Exec(
		ctx,
		"INSERT INTO log_checkpoint (id, mac, at, seqs, signature) VALUES ($1, $2, $3, $4, $5)",
		c.id,
		c.mac,
		c.at,
		c.seqs,
		c.signature,
	)
	if err != nil {
		return 0, fmt.Errorf("set a checkpoint: %w", err)
	}
	h.checkpoint = c.signature
	if err := h.store(ctx, tx, l.signer()); err != nil {
		return 0, err
	}
	for _, table := range []struct{ name, column string }{{"log", "id"}, {"log_target", "log_id"}, {"log_countersigned", "last"}} {
		if _, err := tx.Exec(ctx, "DELETE FROM "+table.name+" WHERE "+table.column+" <= $1", c.id); err != nil {
			return 0, fmt.Errorf("cut %s: %w", table.name, err)
		}
	}
	cut = c.id - w.first + 1
	tx.Record(pg.Record{Kind: "log", Action: "cut", After: cutRecord{cut, c.id}})
	return cut, nil
}

// findLastExpired is the last of the items at the log's beginning that are this old, of so many as are cut at a time; 0: none.
func findLastExpired(ctx context.Context, tx *pg.Tx, older time.Time) (last int64, err error) {
	err = tx.QueryRow(ctx, `
		SELECT coalesce(max(id), 0) FROM (
			SELECT id, bool_and(at < $1) OVER (ORDER BY id) AS old FROM (SELECT id, at FROM log ORDER BY id LIMIT $2) first) first
		WHERE old`, older, cutBatch).Scan(&last)
	if err != nil {
		return 0, fmt.Errorf("find what is old: %w", err)
	}
	return last, nil
}
