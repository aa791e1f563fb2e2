package events

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/pg"
)

const (
	// sequenceBatch is how many changes get their numbers in one transaction.
	sequenceBatch = 2000
	// pollInterval is how often changes are looked for of which no notification came: those of other instances, and those
	// before a restart.
	pollInterval = time.Second
)

// Sequence numbers the changes that are committed, until ctx ends, and wakes the consumers. It fails with ErrRestored
// where the schema is a restored one.
func Sequence(ctx context.Context, service string, db *pg.DB, link *cache.Link) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		n, err := number(ctx, db)
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
func number(ctx context.Context, db *pg.DB) (n int64, err error) {
	err = db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the number of a change is part of its record")
		var last int64
		var intact bool
		err := tx.QueryRow(ctx, "SELECT last, relation = 'sequencer'::regclass FROM sequencer FOR UPDATE SKIP LOCKED").Scan(&last, &intact)
		if errors.Is(err, pgx.ErrNoRows) { // another instance is at it
			return nil
		}
		if err != nil {
			return fmt.Errorf("become the sequencer: %w", err)
		}
		if !intact {
			return ErrRestored
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
		if n = done.RowsAffected(); n == 0 {
			return nil
		}
		if _, err := tx.Exec(ctx, "UPDATE sequencer SET last = last + $1", n); err != nil {
			return fmt.Errorf("note the last number: %w", err)
		}
		return nil
	})
	return n, err
}
