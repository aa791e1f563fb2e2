package events

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/mesh"
	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/principal"
)

// Consumer applies the changes of one service to another's schema.
type Consumer struct {
	Source string // the service whose changes they are
	Kind   string // changes of this kind alone, with dots; empty: all, so that their numbers have no gaps
	// Batched applies as many changes in one unit of work as there are; else each has one of its own, in which it may
	// record what it led to.
	Batched bool
	Apply   func(ctx context.Context, tx *pg.Tx, changes []Event) error

	mu     sync.Mutex
	status Status
}

// Status is how a consumer gets on.
type Status struct {
	Behind  int64     // how many changes it had not applied when it last could ask
	Since   time.Time // all that was changed before then is applied
	Stopped int64     // the change that it cannot apply; 0: none
	Reason  error     // why, or why it cannot ask
}

// Status is how the consumer gets on.
func (c *Consumer) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

func (c *Consumer) note(update func(*Status)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	update(&c.status)
}

// pullTime is how long a page may take.
const pullTime = 20 * time.Second

// errOvertaken says that another instance applied the changes.
var errOvertaken = errors.New("another instance was faster")

// Consume applies what there is, and again whenever it is woken, until ctx ends or a change cannot be applied.
func (c *Consumer) Consume(ctx context.Context, db *pg.DB, peers *mesh.Peers, wake <-chan struct{}) error {
	c.note(func(s *Status) {
		if s.Since.IsZero() {
			s.Since = time.Now()
		}
	})
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		more, err := c.step(ctx, db, peers)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errOvertaken):
			continue
		case err != nil:
			return err
		case more:
			continue
		}
		select {
		case <-wake:
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// step applies a page, and tells whether there is more.
func (c *Consumer) step(ctx context.Context, db *pg.DB, peers *mesh.Peers) (more bool, err error) {
	at, err := c.cursor(ctx, db)
	if err != nil {
		return false, err
	}
	pulling, cancel := context.WithTimeout(ctx, pullTime)
	defer cancel()
	var p page
	asked := time.Now()
	query := url.Values{"after": {strconv.FormatInt(at, 10)}, "kind": {c.Kind}}
	if err := peers.Ask(pulling, c.Source, feedPath+"?"+query.Encode(), &p); err != nil {
		err = fmt.Errorf("pull changes: %w", err)
		c.note(func(s *Status) {
			if s.Stopped == 0 {
				s.Reason = err
			}
		})
		return false, err
	}
	if p.Last < at {
		err := fmt.Errorf("%s has numbered its changes up to %d, and those up to %d are applied: it was restored, or the cursor was moved", c.Source, p.Last, at)
		c.note(func(s *Status) { s.Reason = err })
		return false, err
	}
	c.note(func(s *Status) {
		s.Behind, s.Since = p.Last-at, asked
		if len(p.Events) > 0 {
			s.Since = p.Events[0].At
		}
		if at >= s.Stopped { // it was skipped, or another instance could apply it
			s.Stopped, s.Reason = 0, nil
		}
	})
	if p.Last == at {
		return false, nil
	}
	if err := c.page(ctx, db, at, p); err != nil {
		return false, err
	}
	c.note(func(s *Status) { *s = Status{Since: asked} })
	return true, nil
}

// page applies a page's changes and leaves the cursor behind it, or before the first change that is lost.
func (c *Consumer) page(ctx context.Context, db *pg.DB, at int64, p page) error {
	first, last := c.lost(at, p)
	if last == 0 {
		return c.whole(ctx, db, at, p)
	}
	if before := first - 1; before > at {
		if err := c.whole(ctx, db, at, page{p.Events[:before-at], before}); err != nil {
			return err
		}
	}
	err := fmt.Errorf("the changes %d to %d of %s are not there any more", first, last, c.Source)
	c.note(func(s *Status) { s.Stopped, s.Reason = last, err })
	return errors.Join(err, c.stop(ctx, db, first-1, last))
}

// lost are the first changes behind at that a page leaves out though it should have all of them; 0, 0: none.
func (c *Consumer) lost(at int64, p page) (first, last int64) {
	if c.Kind != "" {
		return 0, 0
	}
	for _, e := range p.Events {
		if at++; e.Seq != at {
			return at, e.Seq - 1
		}
	}
	if at < p.Last {
		return at + 1, p.Last
	}
	return 0, 0
}

// whole applies all changes of a page and leaves the cursor behind it.
func (c *Consumer) whole(ctx context.Context, db *pg.DB, at int64, p page) error {
	if c.Batched && c.apply(ctx, db, at, p.Last, p.Events) == nil {
		return nil
	}
	// One by one, so that one that cannot be applied stops those alone that come after it.
	for i, e := range p.Events {
		if err := c.apply(ctx, db, at, e.Seq, p.Events[i:i+1]); errors.Is(err, errOvertaken) {
			return err
		} else if err != nil {
			err = fmt.Errorf("apply change %d of %s (%s): %w", e.Seq, c.Source, e.Type, err)
			c.note(func(s *Status) { s.Stopped, s.Reason = e.Seq, err })
			return errors.Join(err, c.stop(ctx, db, at, e.Seq))
		}
		at = e.Seq
	}
	if at == p.Last {
		return nil
	}
	return c.apply(ctx, db, at, p.Last, nil)
}

// apply is one unit of work: the changes, and the cursor moved from at to after them.
func (c *Consumer) apply(ctx context.Context, db *pg.DB, at, to int64, changes []Event) error {
	if len(changes) == 1 {
		ctx = principal.With(ctx, &principal.Call{RequestID: changes[0].RequestID})
	}
	return db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("it is recorded where it was changed")
		var now int64
		if err := tx.QueryRow(ctx, "SELECT seq FROM change_cursor WHERE source = $1 FOR UPDATE", c.Source).Scan(&now); err != nil {
			return fmt.Errorf("hold the cursor: %w", err)
		}
		if now != at {
			return errOvertaken
		}
		if len(changes) > 0 {
			if err := c.Apply(ctx, tx, changes); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, "UPDATE change_cursor SET seq = $2, stopped_at = NULL WHERE source = $1", c.Source, to)
		if err != nil {
			return fmt.Errorf("move the cursor: %w", err)
		}
		return nil
	})
}

// cursor is how far the changes are applied.
func (c *Consumer) cursor(ctx context.Context, db *pg.DB) (at int64, err error) {
	err = db.QueryRow(ctx, "SELECT seq FROM change_cursor WHERE source = $1", c.Source).Scan(&at)
	if !errors.Is(err, pgx.ErrNoRows) {
		return at, wrap("read the cursor", err)
	}
	err = db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("nothing is applied yet")
		_, err := tx.Exec(ctx, "INSERT INTO change_cursor (source, seq) VALUES ($1, 0) ON CONFLICT DO NOTHING", c.Source)
		return err
	})
	return 0, wrap("make the cursor", err)
}

func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// stop notes which change could not be applied, for Skip.
func (c *Consumer) stop(ctx context.Context, db *pg.DB, at, seq int64) error {
	err := db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("nothing is applied")
		_, err := tx.Exec(ctx, "UPDATE change_cursor SET stopped_at = $3 WHERE source = $1 AND seq = $2", c.Source, at, seq)
		return err
	})
	return wrap("note where it stopped", err)
}
