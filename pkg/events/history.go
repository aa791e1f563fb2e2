package events

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// ErrRestored means that a schema was restored from a dump, or is a new one, and that the command restored has not
// reconciled it.
var ErrRestored = errors.New(
	"the schema was restored from a backup, or its content is lost: run the command restored before the service starts",
)

// markRestored notes that the schema lacks changes that others have seen. The service does not serve until the command
// restored has reconciled it.
func markRestored(ctx context.Context, tx *pg.Tx) error {
	tx.Unrecorded("the command restored records what is lost")
	_, err := tx.Exec(ctx, "UPDATE sequencer SET relation = 0 WHERE relation <> 0")
	return wrap("note that changes are lost", err)
}

// CurrentHistory returns the history of a schema. It fails with ErrRestored if the schema was restored.
func CurrentHistory(ctx context.Context, q pg.Querier) (uuid string, err error) {
	var intact bool
	err = q.QueryRow(ctx, "SELECT relation = 'sequencer'::regclass AND to_regclass('lost') IS NULL, (SELECT uuid::text FROM history "+
		"WHERE ended IS NULL) FROM sequencer").
		Scan(&intact, &uuid)
	if err != nil {
		return "", fmt.Errorf("read whether the schema was restored: %w", err)
	}
	if !intact {
		return "", ErrRestored
	}
	return uuid, nil
}

// Restore tells a consumer that its source was restored from a backup and reconciled.
type Restore struct {
	Source  string
	After   int64   // the last change from before the restore that the source has
	Applied int64   // the last change that was applied here; the source has lost those between After and this one
	Kept    []int64 // the exceptions: changes behind After that the source still has
	Began   int64   // new changes have higher numbers
}

// successor is the history that followed another one.
type successor struct {
	History string  `json:"history"`
	Ended   int64   `json:"ended"`          // the last number that was kept of the earlier history
	Kept    []int64 `json:"kept,omitempty"` // numbers behind it that were kept, too
	Began   int64   `json:"began"`
}

// findSuccessor returns the history that followed another one; nil if it is the current one, or unknown.
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

// reconcile repairs what is derived from lost changes, and moves the cursor into the following history.
func (c *Consumer) reconcile(ctx context.Context, db *pg.DB, at cursor, n *successor) error {
	to := cursor{seq: n.Began, history: n.History}
	return wrap("go on behind the restored "+c.Source, c.moveCursor(ctx, db, at, to, func(ctx context.Context, tx *pg.Tx) error {
		if c.Reconcile == nil {
			return nil
		}
		return c.Reconcile(ctx, tx, Restore{c.Source, n.Ended, at.seq, n.Kept, n.Began})
	}))
}
