package audit

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// cutBatch is how many items are cut in one transaction.
const cutBatch = 10_000

// cutRecord is what the log says about a cut.
type cutRecord struct {
	Items int64 `json:"items"`
	Last  int64 `json:"last"`
}

// Cut deletes the items at the beginning of the log that are older than the given time. A signed checkpoint replaces
// each batch.
func (l *Log) Cut(ctx context.Context, db *pg.DB, older time.Time) error {
	for {
		var cut int64
		err := db.InTx(ctx, func(tx *pg.Tx) (err error) {
			if cut, err = l.cut(ctx, tx, older); cut == 0 {
				tx.Unrecorded("no item is old enough")
			}
			return err
		})
		if err != nil || cut < cutBatch {
			return err
		}
	}
}

// cut deletes one batch and returns its size. It first verifies the batch and the item after it. Otherwise an altered
// time or an inserted item would vanish behind a valid checkpoint.
func (l *Log) cut(ctx context.Context, tx *pg.Tx, older time.Time) (cut int64, err error) {
	h, err := l.lockHead(ctx, tx)
	if err != nil {
		return 0, err
	}
	last, err := findLastExpired(ctx, tx, older)
	if err != nil || last == 0 {
		return 0, err
	}
	v := l.newVerifier(tx)
	if err := v.verifyCheckpoints(ctx, &h); err != nil {
		return 0, err
	}
	if last = v.alignToRange(last, true); last < v.first {
		return 0, nil
	}
	next := v.alignToRange(last+1, false)
	if err := v.verifyTo(ctx, last); err != nil {
		return 0, err
	}
	c := checkpoint{id: v.id, mac: v.mac, at: time.Now().Truncate(time.Microsecond), seqs: maps.Clone(v.seqs)}
	if last < h.id {
		err = v.verifyTo(ctx, next)
	} else {
		err = v.verifyEnd(ctx, &h)
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
		return 0, fmt.Errorf("insert a checkpoint: %v", err)
	}
	h.checkpoint = c.signature
	if err := h.store(ctx, tx, l.signer()); err != nil {
		return 0, err
	}
	for _, table := range []struct{ name, column string }{{"log", "id"}, {"log_target", "log_id"}, {"log_countersigned", "last"}} {
		if _, err := tx.Exec(ctx, "DELETE FROM "+table.name+" WHERE "+table.column+" <= $1", c.id); err != nil {
			return 0, fmt.Errorf("cut %s: %v", table.name, err)
		}
	}
	cut = c.id - v.first + 1
	tx.Record(pg.Record{Kind: "log", Action: "cut", After: cutRecord{cut, c.id}})
	return cut, nil
}

// findLastExpired returns the last item up to which all items are older than the given time, within one batch; 0: none.
func findLastExpired(ctx context.Context, tx *pg.Tx, older time.Time) (last int64, err error) {
	err = tx.QueryRow(ctx, `
		SELECT coalesce(max(id), 0) FROM (
			SELECT id, bool_and(at < $1) OVER (ORDER BY id) AS old FROM (SELECT id, at FROM log ORDER BY id LIMIT $2) first) first
		WHERE old`, older, cutBatch).Scan(&last)
	if err != nil {
		return 0, fmt.Errorf("find old items: %v", err)
	}
	return last, nil
}
