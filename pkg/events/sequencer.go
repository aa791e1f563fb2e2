package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/wake"
)

const (
	// sequenceBatch is how many changes get their numbers in one transaction.
	sequenceBatch = 2000
	// busyInterval is how soon the sequencer looks again while another instance numbers changes: that one may have
	// started before the change was committed. The interval doubles each time, up to maxBusyInterval.
	busyInterval, maxBusyInterval = 10 * time.Millisecond, time.Second
)

// Sequencer numbers committed changes in the order of their ids.
type Sequencer struct {
	DB       *pg.DB
	Numbered func()        // called after changes got numbers, to wake consumers; nil: they poll
	Interval time.Duration // how often it looks without a wake-up; 0: wake.Interval

	seen cursor
}

// Run numbers changes as soon as this process has committed them, until ctx ends. It fails with ErrRestored if the
// schema was restored, or if it lacks the last change that this sequencer numbered.
func (s *Sequencer) Run(ctx context.Context) error {
	busy := busyInterval
	for {
		n, err := numberChanges(ctx, s.DB, &s.seen)
		if err != nil && !errors.Is(err, errBusy) {
			return err
		}
		if n > 0 && s.Numbered != nil {
			s.Numbered()
		}
		if n == sequenceBatch {
			continue
		}
		interval := cmp.Or(s.Interval, wake.Interval)
		if err != nil {
			interval = busy
			busy = min(2*busy, maxBusyInterval)
		} else {
			busy = busyInterval
		}
		timer := time.NewTimer(interval)
		select {
		case <-s.DB.Recorded():
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// errBusy means that another instance is numbering changes.
var errBusy = errors.New("another instance numbers changes")

// numberChanges gives the next numbers to committed changes without one, and returns how many got one.
//
// The second of two changes of an item waits until the first is committed before it is written. So the second has the
// higher id, and every transaction that sees it sees the first, too: ordered by id, an item's changes are in order.
//
// A database may be restored under the running service, or a standby may take over that lacks the last changes. Then the
// schema lacks changes that seen has. This is noted in the schema, so that the service does not serve after its next
// start.
func numberChanges(ctx context.Context, db *pg.DB, seen *cursor) (n int64, err error) {
	now := *seen
	err = db.InTx(ctx, func(tx *pg.Tx) error {
		n, now = 0, *seen
		tx.Unrecorded("the number of a change is part of its record")
		var last int64
		var intact bool
		var lastChange string // the id of the last seen change
		err := tx.QueryRow(
			ctx,
			"SELECT last, relation = 'sequencer'::regclass, (SELECT uuid::text FROM history WHERE ended IS NULL), "+idSQL(
				"$1",
			)+" FROM sequencer FOR UPDATE SKIP LOCKED",
			seen.seq,
		).
			Scan(&last, &intact, &now.history, &lastChange)
		if errors.Is(err, pgx.ErrNoRows) {
			return errBusy
		}
		if err != nil {
			return fmt.Errorf("become the sequencer: %w", err)
		}
		if !intact || seen.history != "" && seen.history != now.history {
			return ErrRestored
		}
		if last < seen.seq || seen.change != "" && lastChange != "" && seen.change != lastChange {
			n = -1
			return markRestored(ctx, tx)
		}
		// A statement of its own: it sees all that was committed before the lock was free.
		done, err := tx.Exec(ctx, `
			UPDATE change SET seq = $1 + next.n
			FROM (SELECT id, row_number() OVER (ORDER BY id) AS n
				FROM (SELECT id FROM change WHERE seq IS NULL ORDER BY id LIMIT $2) unnumbered) next
			WHERE change.id = next.id AND change.seq IS NULL`, last, sequenceBatch)
		if err != nil {
			return fmt.Errorf("number changes: %w", err)
		}
		if n = done.RowsAffected(); n == 0 && now.seq == last {
			return nil
		}
		now.seq = last + n
		if n > 0 {
			if _, err := tx.Exec(ctx, "UPDATE sequencer SET last = $1", now.seq); err != nil {
				return fmt.Errorf("store the last number: %w", err)
			}
		}
		return wrap("read the last change's id", tx.QueryRow(ctx, "SELECT "+idSQL("$1"), now.seq).Scan(&now.change))
	})
	if n < 0 && err == nil {
		return 0, ErrRestored
	}
	if err == nil {
		*seen = now
	}
	return n, err
}
