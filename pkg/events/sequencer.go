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
	// busyInterval is how soon the sequencer looks again while another instance numbers changes, doubled each time up to
	// maxBusyInterval: that one may have begun before the change was committed.
	busyInterval, maxBusyInterval = 10 * time.Millisecond, time.Second
)

// Sequencer numbers the changes that are committed.
type Sequencer struct {
	DB       *pg.DB
	Numbered func()        // wakes the consumers; nil: they look by themselves
	Interval time.Duration // how often it looks for changes that nobody has told of; 0: wake.Interval

	seen cursor
}

// Run numbers changes as soon as this process has committed them until ctx ends. It fails with ErrRestored where the
// schema is a restored one, or lacks the last change that the sequencer has numbered itself.
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

// errBusy says that another instance numbers changes.
var errBusy = errors.New("another instance numbers changes")

// numberChanges gives the next numbers to changes that are committed and have none, and tells to how many.
//
// Of two changes of one item the second waits until the first is committed, before it is written down: so its id is
// higher, and whoever sees it sees the first, too. Ordered by id, an item's changes are in order.
//
// A database that was put back below the running service, or that another one took over which had not heard of all,
// lacks what was seen of it. That is noted in the schema, so that the service does not serve once it was started again.
func numberChanges(ctx context.Context, db *pg.DB, seen *cursor) (n int64, err error) {
	now := *seen
	err = db.InTx(ctx, func(tx *pg.Tx) error {
		n, now = 0, *seen
		tx.Unrecorded("the number of a change is part of its record")
		var last int64
		var intact bool
		var lastChange string // the id of the change that was seen last
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
				return fmt.Errorf("note the last number: %w", err)
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
