package events

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// ErrRestored says that a schema was restored from a dump, or began anew, and was not taken up since.
var ErrRestored = errors.New(
	"the schema was restored from a backup, or what was in it is lost: the command restored has to take it up before it serves",
)

// markRestored notes that the schema lacks changes that somebody has seen, so that nothing serves before it is taken up.
func markRestored(ctx context.Context, tx *pg.Tx) error {
	tx.Unrecorded("what is lost is recorded when the schema is taken up")
	_, err := tx.Exec(ctx, "UPDATE sequencer SET relation = 0 WHERE relation <> 0")
	return wrap("note that changes are lost", err)
}

// CurrentHistory is the one that the schema is in. It fails with ErrRestored where the schema is a restored one.
func CurrentHistory(ctx context.Context, q pg.Querier) (uuid string, err error) {
	var intact bool
	err = q.QueryRow(ctx, "SELECT relation = 'sequencer'::regclass AND to_regclass('lost') IS NULL, (SELECT uuid::text FROM history "+
		"WHERE ended IS NULL) FROM sequencer").
		Scan(&intact, &uuid)
	if err != nil {
		return "", fmt.Errorf("look whether the schema was restored: %w", err)
	}
	if !intact {
		return "", ErrRestored
	}
	return uuid, nil
}

// Restore tells a consumer that its source was restored from a backup and taken up again.
type Restore struct {
	Source  string
	After   int64   // the last change of before that the source has
	Applied int64   // the last one that was applied here, of which the source has forgotten those after After
	Kept    []int64 // of those, which it has all the same
	Began   int64   // the numbers go on behind this one
}

// successor is the history that followed another one.
type successor struct {
	History string  `json:"history"`
	Ended   int64   `json:"ended"`          // the last number of the one before that there is
	Kept    []int64 `json:"kept,omitempty"` // numbers behind that one which are there all the same
	Began   int64   `json:"began"`
}

// findSuccessor is what followed a history; nil: it goes on, or nobody knows of it.
func findSuccessor(ctx context.Context, q pg.Querier, history string) (*successor, error) {
	var n successor
	err := q.QueryRow(ctx, `SELECT later.uuid::text, earlier.ended, later.began, ARRAY(SELECT seq FROM change WHERE seq > earlier.ended AND seq <= later.began ORDER BY seq)
		FROM history earlier JOIN history later ON later.began > coalesce(earlier.began, earlier.ended)
		WHERE earlier.uuid::text = $1 AND earlier.ended IS NOT NULL ORDER BY later.began LIMIT 1`, history).
		Scan(&n.History, &n.Ended, &n.Began, &n.Kept)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what followed history %s: %w", history, err)
	}
	return &n, nil
}

// reconcile goes on with the history that followed the one of the cursor.
func (c *Consumer) reconcile(ctx context.Context, db *pg.DB, at cursor, n *successor) error {
	to := cursor{seq: n.Began, history: n.History}
	return wrap("go on behind the restored "+c.Source, c.moveCursor(ctx, db, at, to, func(ctx context.Context, tx *pg.Tx) error {
		if c.Reconcile == nil {
			return nil
		}
		return c.Reconcile(ctx, tx, Restore{c.Source, n.Ended, at.seq, n.Kept, n.Began})
	}))
}
