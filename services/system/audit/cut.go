package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/pg"
)

// slice is how many items are cut at a time.
const slice = 10_000

// cutting is what stands in the record of a cut.
type cutting struct {
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
		if err != nil || cut < slice {
			return err
		}
	}
}

func (l *Log) cut(ctx context.Context, tx *pg.Tx, older time.Time) (cut int64, err error) {
	head, err := readEnd(ctx, tx, "FOR UPDATE")
	if err != nil {
		return 0, err
	}
	if err := l.checkEnd(&head); err != nil {
		return 0, err
	}
	at := checkpoint{at: time.Now().Truncate(time.Microsecond)}
	err = tx.QueryRow(ctx, `
		SELECT id, mac, count(*) OVER () FROM (
			SELECT id, mac, bool_and(at < $1) OVER (ORDER BY id) AS old FROM (SELECT id, at, mac FROM log ORDER BY id LIMIT $2) first) first
		WHERE old ORDER BY id DESC LIMIT 1`,
		older, slice).Scan(&at.id, &at.mac, &cut)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("find what is old: %w", err)
	}
	_, err = tx.Exec(ctx, "INSERT INTO log_checkpoint (id, mac, at, signature) VALUES ($1, $2, $3, $4)", at.id, at.mac, at.at, l.signer().Sign(at.message()))
	if err != nil {
		return 0, fmt.Errorf("set a checkpoint: %w", err)
	}
	for _, table := range []struct{ name, column string }{{"log", "id"}, {"log_target", "log_id"}} {
		if _, err := tx.Exec(ctx, "DELETE FROM "+table.name+" WHERE "+table.column+" <= $1", at.id); err != nil {
			return 0, fmt.Errorf("cut %s: %w", table.name, err)
		}
	}
	tx.Record(pg.Record{Kind: "log", Action: "cut", After: cutting{cut, at.id}})
	return cut, nil
}
