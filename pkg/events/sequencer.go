package events

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

const (
	// sequenceBatch is how many changes get their numbers in one transaction.
	sequenceBatch = 2000
	// pollInterval is how often changes are looked for of which no notification came: those of other instances, and those
	// before a restart.
	pollInterval = time.Second
)

// Sequencer is a job that numbers the changes that are committed, until its context ends, and wakes the consumers. It
// fails with ErrRestored where the schema is a restored one, or lacks the last change that it has numbered itself.
func Sequencer(service string, db *pg.DB, link *cache.Link) func(context.Context) error {
	var seen cursor
	return func(ctx context.Context) error { return sequence(ctx, service, db, link, &seen) }
}

func sequence(ctx context.Context, service string, db *pg.DB, link *cache.Link, seen *cursor) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		n, err := number(ctx, db, seen)
		if err != nil {
			return err
		}
		if n > 0 { // that Redis is away costs consumers a moment
			_ = link.Do(ctx, func(ctx context.Context, client redis.UniversalClient) error {
				return client.Publish(ctx, channel(service), n).Err()
			})
		}
		if n == sequenceBatch {
			continue
		}
		select {
		case <-db.Recorded():
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// channel is where Redis says that a service has numbered changes.
func channel(service string) string { return "events:" + service }

// number gives the next numbers to changes that are committed and have none, and tells to how many.
//
// Of two changes of one item the second waits until the first is committed, before it is written down: so its id is
// higher, and whoever sees it sees the first, too. Ordered by id, an item's changes are in order.
//
// A database that was put back below the running service, or that another one took over which had not heard of all,
// lacks what was seen of it. That is noted in the schema, so that the service does not serve once it was started again.
func number(ctx context.Context, db *pg.DB, seen *cursor) (n int64, err error) {
	now := *seen
	err = db.InTx(ctx, func(tx *pg.Tx) error {
		n, now = 0, *seen
		tx.Unrecorded("the number of a change is part of its record")
		var last int64
		var intact bool
		var again string // the id of the change that was seen last
		err := tx.QueryRow(ctx, "SELECT last, relation = 'sequencer'::regclass, (SELECT uuid::text FROM history WHERE ended IS NULL), "+idOf("$1")+" FROM sequencer FOR UPDATE SKIP LOCKED", seen.seq).
			Scan(&last, &intact, &now.history, &again)
		if errors.Is(err, pgx.ErrNoRows) { // another instance is at it
			return nil
		}
		if err != nil {
			return fmt.Errorf("become the sequencer: %w", err)
		}
		if !intact || seen.history != "" && seen.history != now.history {
			return ErrRestored
		}
		if last < seen.seq || seen.change != "" && again != "" && seen.change != again {
			n = -1
			return noteRestored(ctx, tx)
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
		return wrap("read the last change's id", tx.QueryRow(ctx, "SELECT "+idOf("$1"), now.seq).Scan(&now.change))
	})
	if n < 0 && err == nil {
		return 0, ErrRestored
	}
	if err == nil {
		*seen = now
	}
	return n, err
}
