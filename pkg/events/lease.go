package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
)

// Leases is for items whose deletion other services can forbid, because they refer to them. See docs/understand/events.md.
type Leases struct {
	DB    *pg.DB // of the service that has the items
	Peers mesh.Peers
	Type  string // as in Refs
	Noun  string
	Table string
	Users []string // the services with a Refs.Uses
}

// leaseTTL is how long a deletion may take from the first question until the unit of work that deletes.
const leaseTTL = 10 * time.Second

// Acquire makes sure, in the unit of work that deletes them, that nobody refers to items or comes to do so. It is called once
// for all of them, and only for who may delete them, because meanwhile nobody can refer to them.
func (c *Leases) Acquire(ctx context.Context, tx *pg.Tx, ids []int64) error {
	closed, err := tx.Exec(ctx, "DELETE FROM closing WHERE type = $1 AND id = ANY ($2) AND agreed AND until > clock_timestamp()", c.Type, ids)
	if err != nil {
		return fmt.Errorf("end the closing of %s %v: %w", c.Type, ids, err)
	}
	if closed.RowsAffected() < int64(len(ids)) {
		return pg.RestartAfter(func(ctx context.Context) error { return c.confirmAll(ctx, ids) })
	}
	return nil
}

// lease is one that is being deleted, as its users are asked about it.
type lease struct{ ID, Token int64 }

// usage is an item that is referred to, and how.
type usage struct {
	ID    int64  `json:"id"` // 0: none is
	Usage string `json:"uses,omitempty"`

	Detached int64 `json:"detached,omitempty"` // references that were taken away
}

// confirmAll has all users agree that the items are deleted.
func (c *Leases) confirmAll(ctx context.Context, ids []int64) error {
	items, err := c.acquire(ctx, ids)
	if err != nil || len(items) == 0 {
		return err
	}
	for _, service := range c.Users {
		found, err := c.askUser(ctx, service, items, "")
		if err == nil && found.ID != 0 {
			err = problem.New(problem.Conflict, "%s%s %d %s.", strings.ToUpper(c.Noun[:1]), c.Noun[1:], found.ID, found.Usage)
		}
		if err != nil {
			return errors.Join(err, c.update(ctx, "DELETE FROM closing WHERE token = ANY ($1) AND until < 'infinity'", items))
		}
	}
	return c.update(ctx, "UPDATE closing SET agreed = true WHERE token = ANY ($1)", items)
}

// acquire notes that the items are being deleted.
func (c *Leases) acquire(ctx context.Context, ids []int64) (items []lease, err error) {
	err = c.DB.InTx(ctx, func(tx *pg.Tx) (err error) {
		tx.Unrecorded("it is recorded once it is done")
		items, err = c.insert(ctx, tx, ids, leaseTTL.String())
		return err
	})
	return items, err
}

// insert is of those that somebody else is just deleting, too, his. One without an end stays as it is.
func (c *Leases) insert(ctx context.Context, tx *pg.Tx, ids []int64, ttl string) (items []lease, err error) {
	rows, err := tx.Query(ctx, `
		WITH item AS (SELECT id FROM `+pgx.Identifier{c.Table}.Sanitize()+` WHERE id = ANY ($2) ORDER BY id FOR UPDATE)
		INSERT INTO closing AS c (type, id, until) SELECT $1, id, CASE $3 WHEN '' THEN 'infinity' ELSE clock_timestamp() + nullif($3, '')::interval END FROM item
		ON CONFLICT (type, id) DO UPDATE SET until = EXCLUDED.until, agreed = c.agreed AND c.until > clock_timestamp(),
			token = CASE WHEN c.until > clock_timestamp() THEN c.token ELSE EXCLUDED.token END
		WHERE c.until < 'infinity' RETURNING id, token`, c.Type, ids, ttl)
	if err == nil {
		items, err = pgx.CollectRows(rows, pgx.RowToStructByPos[lease])
	}
	return items, wrap("close "+c.Type, err)
}

// AcquirePermanent closes items, with the unit of work, until they are deleted, though they are referred to, of which Detach takes them.
// Their users hear of it before the answer.
func (c *Leases) AcquirePermanent(ctx context.Context, tx *pg.Tx, ids []int64) error {
	if _, err := c.insert(ctx, tx, ids, ""); err != nil {
		return err
	}
	rows, err := tx.Query(ctx, "SELECT id, token FROM closing WHERE type = $1 AND id = ANY ($2)", c.Type, ids)
	if err != nil {
		return fmt.Errorf("close %s: %w", c.Type, err)
	}
	items, err := pgx.CollectRows(rows, pgx.RowToStructByPos[lease])
	tx.AfterCommit(func(ctx context.Context) (failed error) {
		for _, service := range c.Users {
			_, err := c.askUser(ctx, service, items, detachLater)
			failed = errors.Join(failed, err)
		}
		return failed
	})
	return wrap("close "+c.Type, err)
}

// Detach has users take some of what refers to an item away that stays closed, and says how much that was. Where there was
// nothing, the item can be deleted.
func (c *Leases) Detach(ctx context.Context, id int64) (detached int64, err error) {
	item := lease{ID: id}
	err = c.DB.QueryRow(ctx, "SELECT token FROM closing WHERE type = $1 AND id = $2 AND until = 'infinity'", c.Type, id).Scan(&item.Token)
	if errors.Is(err, pgx.ErrNoRows) { // it is deleted by now
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read how %s %d is closed: %w", c.Type, id, err)
	}
	for _, service := range c.Users {
		found, err := c.askUser(ctx, service, []lease{item}, detachNow)
		if err != nil {
			return detached, err
		}
		detached += found.Detached
	}
	if detached > 0 {
		return detached, nil
	}
	return 0, c.update(ctx, "UPDATE closing SET agreed = true WHERE token = ANY ($1)", []lease{item})
}

// What a question is for beside whether items are used.
const (
	detachLater = "later" // nobody comes to refer to them, though some do
	detachNow   = "now"   // some of what refers to the first one is taken away
)

func (c *Leases) askUser(ctx context.Context, service string, items []lease, detach string) (found usage, err error) {
	ctx, cancel := c.Peers.Limit(ctx, askTimeout)
	defer cancel()
	text, err := json.Marshal(items)
	if err != nil {
		return found, err
	}
	path := leasePath(c.Type) + "?items=" + url.QueryEscape(string(text))
	if detach != "" {
		path += "&detach=" + detach
	}
	if err := c.Peers.Ask(ctx, service, path, &found); err != nil {
		return found, problem.New(problem.Unavailable, "Whether %s uses it cannot be found out right now.", service).Because(err)
	}
	return found, nil
}

func (c *Leases) update(ctx context.Context, sql string, items []lease) error {
	tokens := make([]int64, len(items))
	for i, item := range items {
		tokens[i] = item.Token
	}
	return wrap("settle the closing of "+c.Type, c.DB.InTx(context.WithoutCancel(ctx), func(tx *pg.Tx) error {
		tx.Unrecorded("it is recorded once it is done")
		_, err := tx.Exec(ctx, sql, tokens)
		return err
	}))
}

// endExpired ends the closing of an item whose time is over, so that its deletion has to begin anew. It waits for one that is
// about to commit.
func endExpired(ctx context.Context, db *pg.DB, kind string, id int64) error {
	return wrap("lift the closing of "+kind, db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("nothing is deleted")
		_, err := tx.Exec(ctx, "DELETE FROM closing WHERE type = $1 AND id = $2 AND until < clock_timestamp()", kind, id)
		return err
	}))
}

func leasePath(kind string) string { return "/internal/close/" + kind }

type leaseRequest struct {
	Items  string `query:"items" max:"10000"` // []lease as JSON, a hundred
	Detach string `query:"detach" enum:"later,now"`
}

var errInUse = errors.New("it is used")

// LeaseRoute answers the owner whether items may be deleted. Once it has said so, Hold refuses them; where references are
// detached, in any case.
func (r *Refs) LeaseRoute() rest.Route {
	return rest.Read[leaseRequest, usage]{
		Path:  leasePath(r.Type),
		Guard: guard.Peers(r.Owner),
		Do: func(ctx context.Context, req leaseRequest) (found usage, err error) {
			var items []lease
			if err := json.Unmarshal([]byte(req.Items), &items); err != nil {
				return found, fmt.Errorf("read which items: %w", err)
			}
			err = r.DB.InTx(ctx, func(tx *pg.Tx) error {
				tx.Unrecorded("it is recorded where it is deleted")
				var name string
				for _, item := range items { // which waits for those who hold it; one that comes late has a lower token
					if req.Detach == detachNow { // it stays closed, and nobody is to wait while references are taken away
						err := tx.QueryRow(ctx, "SELECT name FROM ref WHERE type = $1 AND id = $2 AND closing >= $3", r.Type, item.ID, item.Token).
							Scan(&name)
						if err == nil {
							continue
						}
						if !errors.Is(err, pgx.ErrNoRows) {
							return fmt.Errorf("read whether %s %d is closed: %w", r.Type, item.ID, err)
						}
					}
					err := tx.QueryRow(ctx, `
					INSERT INTO ref (type, id, name, version, closing) VALUES ($1, $2, '', 0, $3)
					ON CONFLICT (type, id) DO UPDATE SET closing = greatest(ref.closing, EXCLUDED.closing) RETURNING name`, r.Type, item.ID, item.Token).Scan(&name)
					if err != nil {
						return fmt.Errorf("close %s %d: %w", r.Type, item.ID, err)
					}
				}
				if req.Detach == detachNow {
					found.Detached, err = r.Detach(ctx, tx, items[0].ID, name)
				}
				if req.Detach != "" {
					return err
				}
				for _, item := range items {
					reason, err := r.FindUsage(ctx, tx, item.ID)
					if found = (usage{ID: item.ID, Usage: reason}); err != nil || reason != "" {
						return errors.Join(err, errInUse)
					}
				}
				found = usage{}
				return nil
			})
			if errors.Is(err, errInUse) {
				err = nil
			}
			return found, err
		},
	}
}
