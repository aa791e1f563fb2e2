package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/pkg/runtime/tracing"
	"github.com/ironplane/ironplane/pkg/wake"
)

// Consumer applies the changes of one service to another's schema.
type Consumer struct {
	Source string // the service that makes the changes
	// Name tells several consumers of the same source apart; empty for the first one. A named consumer is added to
	// services that may have deleted old changes: it begins with the first change that its source still has. If you
	// remove one from the program, delete its cursor in a migration, because the source keeps changes for every cursor.
	Name string
	Kind string // only changes of this kind, such as pxe.dhcp; empty: all, so their numbers have no gaps
	// Batched applies all changes of a page in one unit of work. Otherwise each has its own, which may record what it
	// led to.
	Batched bool
	Apply   func(ctx context.Context, tx *pg.Tx, changes []Event) error
	// Reconcile repairs what this service derived from changes that its restored source has lost. For a Kind it also
	// repairs what the service missed of changes that the source has deleted. It runs in the unit of work that moves the
	// cursor; nil: there is nothing to repair.
	Reconcile func(context.Context, *pg.Tx, Restore) error

	Interval time.Duration // how often it looks without a wake-up; 0: wake.Interval

	mu     sync.Mutex
	status Status
}

// Status tells how far a consumer is.
type Status struct {
	Behind          int64     // how many changes it had not applied at its last successful request
	Since           time.Time // all changes from before this time are applied
	Stopped         int64     // the change that it cannot apply; 0: none
	HistoryMismatch bool      // its source lacks changes that it has applied: the source was restored
	Reason          error     // why it stopped, or why it cannot ask
}

// String returns the consumer's name for operators: pxe, or pxe/webhooks if it has a Name.
func (c *Consumer) String() string { return fullName(c.Source, c.Name) }

func fullName(source, name string) string {
	if name == "" {
		return source
	}
	return source + "/" + name
}

// Status returns how far the consumer is.
func (c *Consumer) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

func (c *Consumer) updateStatus(update func(*Status)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	update(&c.status)
}

// pullTimeout is how long a request for a page may take.
const pullTimeout = 20 * time.Second

// errOvertaken means that another instance applied the changes.
var errOvertaken = errors.New("another instance was faster")

// Consume applies changes, and looks for more whenever it is woken, until ctx ends or a change cannot be applied.
func (c *Consumer) Consume(ctx context.Context, db *pg.DB, peers mesh.Peers, woken <-chan struct{}) error {
	c.updateStatus(func(s *Status) {
		if s.Since.IsZero() {
			s.Since = time.Now()
		}
	})
	tick := time.NewTicker(cmp.Or(c.Interval, wake.Interval))
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
		case <-woken:
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// cursor is a consumer's position: the last change that it has applied.
type cursor struct {
	seq     int64
	history string // the history that numbered it; empty: not yet known
	change  string // the change's id; empty: not known
}

// endCursor returns the cursor of a consumer that has applied the whole page.
func (p *page) endCursor() cursor { return cursor{p.Last, p.History, p.LastID} }

// cursorAt returns the cursor of a consumer that has applied the page up to this change.
func (p *page) cursorAt(e *Event) cursor { return cursor{e.Seq, p.History, e.ID} }

// step applies a page, and tells whether there may be more.
func (c *Consumer) step(ctx context.Context, db *pg.DB, peers mesh.Peers) (more bool, err error) {
	at, slowest, err := c.loadCursor(ctx, db)
	if err != nil {
		return false, err
	}
	pulling, cancel := peers.Limit(ctx, pullTimeout)
	defer cancel()
	var p page
	asked := time.Now()
	query := url.Values{"after": {strconv.FormatInt(at.seq, 10)}, "history": {at.history}, "kind": {c.Kind}}
	if slowest < at.seq {
		query.Set("ahead", strconv.FormatInt(at.seq-slowest, 10))
	}
	if err := peers.Ask(pulling, c.Source, feedPath+"?"+query.Encode(), &p); err != nil {
		err = fmt.Errorf("pull changes: %w", err)
		c.updateStatus(func(s *Status) {
			if s.Stopped == 0 {
				s.Reason = err
			}
		})
		return false, err
	}
	if p.History == "" { // a source of an older version does not send it
		p.History, p.After = at.history, at.change
	}
	if err := c.checkHistory(at, &p); err != nil {
		c.updateStatus(func(s *Status) { s.HistoryMismatch, s.Reason = true, err })
		return false, err
	}
	c.updateStatus(func(s *Status) {
		s.Behind, s.Since, s.HistoryMismatch = max(p.Last, p.Newest)-at.seq, asked, false
		if len(p.Events) > 0 {
			s.Since = p.Events[0].At
		}
		if at.seq >= s.Stopped { // it was skipped, or another instance has applied it
			s.Stopped, s.Reason = 0, nil
		}
	})
	switch {
	case p.Next != nil && at.seq >= p.Next.Ended && len(p.Events) > 0: // changes that the restore kept, and this consumer has not applied
		err = c.applyAll(ctx, db, at, p)
	case p.Next != nil && at.seq >= p.Next.Ended:
		err = c.reconcile(ctx, db, at, p.Next)
	case p.Last == at.seq && p.History == at.history:
		return false, nil
	case p.Forgot && c.Kind != "" && c.Reconcile != nil: // this service itself was restored
		err = c.moveCursor(ctx, db, at, p.endCursor(), func(ctx context.Context, tx *pg.Tx) error {
			return c.Reconcile(ctx, tx, Restore{Source: c.Source, After: at.seq, Applied: at.seq, Began: p.Last})
		})
	default:
		err = c.applyPage(ctx, db, at, p)
	}
	if err != nil {
		return false, err
	}
	c.updateStatus(func(s *Status) { *s = Status{Since: asked} })
	return true, nil
}

// checkHistory returns an error if the source lacks changes that this consumer has applied.
func (c *Consumer) checkHistory(at cursor, p *page) error {
	switch {
	case at.history != "" && at.history != p.History:
		return fmt.Errorf("%s does not know the history %s, from which changes were applied: it was restored", c.Source, at.history)
	case p.Next != nil && at.seq > p.Next.Ended: // the restore has lost some, and the source says so
		return nil
	case p.Last < at.seq:
		return fmt.Errorf(
			"%s has numbered its changes up to %d, but those up to %d were applied: it was restored, or the cursor was moved",
			c.Source,
			p.Last,
			at.seq,
		)
	case at.change != "" && p.After != "" && at.change != p.After:
		return fmt.Errorf("change %d of %s is not the one that was applied: the service was restored", at.seq, c.Source)
	}
	return nil
}

// applyPage applies a page and moves the cursor to its end. If changes are missing, it applies those before the gap, and
// stops.
func (c *Consumer) applyPage(ctx context.Context, db *pg.DB, at cursor, p page) error {
	first, last := c.findGap(at.seq, p)
	if last == 0 {
		return c.applyAll(ctx, db, at, p)
	}
	if n, _ := slices.BinarySearchFunc(p.Events, first, func(e Event, seq int64) int { return cmp.Compare(e.Seq, seq) }); n > 0 {
		intact := p
		intact.Events = p.Events[:n]
		intact.Last, intact.LastID = intact.Events[n-1].Seq, intact.Events[n-1].ID
		if err := c.applyAll(ctx, db, at, intact); err != nil {
			return err
		}
	}
	err := fmt.Errorf("the changes %d to %d of %s no longer exist", first, last, c)
	c.updateStatus(func(s *Status) { s.Stopped, s.Reason = last, err })
	return errors.Join(err, c.noteStop(ctx, db, first-1, last, p.Newest))
}

// findGap returns the first range of changes behind at that the page should have and lacks; 0, 0 if there is none.
func (c *Consumer) findGap(at int64, p page) (first, last int64) {
	if c.Kind != "" {
		return 0, 0
	}
	if c.Name != "" && at == 0 {
		if at = p.Last; len(p.Events) > 0 {
			at = p.Events[0].Seq - 1
		}
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

// applyAll applies all changes of a page and moves the cursor to its end.
func (c *Consumer) applyAll(ctx context.Context, db *pg.DB, at cursor, p page) error {
	if c.Batched && c.apply(ctx, db, at, p.endCursor(), p.Events) == nil {
		return nil
	}
	// One by one, so that a change that cannot be applied stops only those behind it.
	for i, e := range p.Events {
		if err := c.apply(ctx, db, at, p.cursorAt(&e), p.Events[i:i+1]); errors.Is(err, errOvertaken) {
			return err
		} else if err != nil {
			err = &RequestError{e.RequestID, fmt.Errorf("apply change %d of %s (%s): %w", e.Seq, c, e.Type, err)}
			c.updateStatus(func(s *Status) { s.Stopped, s.Reason = e.Seq, err })
			return errors.Join(err, c.noteStop(ctx, db, at.seq, e.Seq, p.Newest))
		}
		at = p.cursorAt(&e)
	}
	if at == p.endCursor() {
		return nil
	}
	return c.apply(ctx, db, at, p.endCursor(), nil)
}

// apply applies changes and moves the cursor from at to to, in one unit of work.
func (c *Consumer) apply(ctx context.Context, db *pg.DB, at, to cursor, changes []Event) (err error) {
	if len(changes) == 1 {
		ctx = principal.NewContext(ctx, &principal.Call{RequestID: changes[0].RequestID})
	}
	traceparents := make([]string, len(changes))
	for i := range changes {
		traceparents[i] = changes[i].Traceparent
	}
	ctx, endSpan := tracing.Process(ctx, "changes of "+c.String(), traceparents...)
	defer func() { endSpan(err) }()
	return c.moveCursor(ctx, db, at, to, func(ctx context.Context, tx *pg.Tx) error {
		if len(changes) == 0 {
			return nil
		}
		return c.Apply(ctx, tx, changes)
	})
}

// moveCursor moves the cursor in the unit of work in which do runs. It fails with errOvertaken if another instance has
// moved it.
func (c *Consumer) moveCursor(ctx context.Context, db *pg.DB, at, to cursor, do func(context.Context, *pg.Tx) error) error {
	return db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("it is recorded where it was changed")
		now, _, err := c.readCursor(ctx, tx, "FOR UPDATE")
		if err != nil {
			return fmt.Errorf("hold the cursor: %w", err)
		}
		if now != at {
			return errOvertaken
		}
		if err := do(ctx, tx); err != nil {
			return err
		}
		_, err = tx.Exec(
			ctx,
			"UPDATE consumer SET seq = $3, history = nullif($4, '')::uuid, change = nullif($5, '')::uuid, change_seq = $3, stopped_at = NULL "+
				"WHERE source = $1 AND name = $2",
			c.Source,
			c.Name,
			to.seq,
			to.history,
			to.change,
		)
		if err != nil {
			return fmt.Errorf("move the cursor: %w", err)
		}
		return nil
	})
}

func (c *Consumer) readCursor(ctx context.Context, q pg.Querier, lock string) (at cursor, slowest int64, err error) {
	err = q.QueryRow(ctx, `SELECT seq, coalesce(history::text, ''), coalesce(CASE WHEN change_seq = seq THEN change::text END, ''), (SELECT min(seq) FROM consumer WHERE source = $1)
		FROM consumer WHERE source = $1 AND name = $2 `+lock, c.Source, c.Name).
		Scan(&at.seq, &at.history, &at.change, &slowest)
	return at, slowest, err
}

// loadCursor returns the consumer's cursor, and the number that the slowest of the service's consumers of this source
// has reached.
func (c *Consumer) loadCursor(ctx context.Context, db *pg.DB) (at cursor, slowest int64, err error) {
	at, slowest, err = c.readCursor(ctx, db, "")
	if !errors.Is(err, pgx.ErrNoRows) {
		return at, slowest, wrap("read the cursor", err)
	}
	err = db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("nothing is applied yet")
		_, err := tx.Exec(ctx, "INSERT INTO consumer (source, name, seq) VALUES ($1, $2, 0) ON CONFLICT DO NOTHING", c.Source, c.Name)
		return err
	})
	return cursor{}, 0, wrap("insert the cursor", err)
}

func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// noteStop stores which change could not be applied. An operator may skip it.
func (c *Consumer) noteStop(ctx context.Context, db *pg.DB, at, seq, newest int64) error {
	err := db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("nothing is applied")
		_, err := tx.Exec(
			ctx,
			"UPDATE consumer SET stopped_at = $4::bigint, newest = greatest($4::bigint, $5::bigint) WHERE source = $1 AND name = $2 AND seq = $3",
			c.Source,
			c.Name,
			at,
			seq,
			newest,
		)
		return err
	})
	return wrap("store where the consumer stopped", err)
}
