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

// Leases manages deletion leases for the items of a table, which other services refer to and whose deletion they can
// refuse. While a lease lasts, no service adds a reference to the item. See docs/understand/events.md.
type Leases struct {
	DB    *pg.DB // of the items' service
	Peers mesh.Peers
	Type  string // as in Refs
	Noun  string
	Table string
	Users []string // the services with a Refs.FindUsage
}

// leaseTTL is how long a deletion may take from the first question to other services until it commits.
const leaseTTL = 10 * time.Second

// Acquire makes sure, in the unit of work that deletes the items, that no service refers to them or starts to do so. It
// is called once for all items, after the caller's permission was checked, because during a lease nobody can refer to
// them. If a service refers to an item, the error is a 409.
func (l *Leases) Acquire(ctx context.Context, tx *pg.Tx, ids []int64) error {
	if tx.IsDryRun() {
		return tx.AskOnce(fmt.Sprint(l.Type, ids), func(ctx context.Context) error { return l.askAll(ctx, ids) })
	}
	closed, err := tx.Exec(ctx, "DELETE FROM closing WHERE type = $1 AND id = ANY ($2) AND agreed AND until > clock_timestamp()", l.Type, ids)
	if err != nil {
		return fmt.Errorf("end the deletion leases of %s %v: %w", l.Type, ids, err)
	}
	if closed.RowsAffected() < int64(len(ids)) {
		return pg.RestartAfter(func(ctx context.Context) error { return l.confirmAll(ctx, ids) })
	}
	return nil
}

// lease is the deletion lease of an item. A later lease of the same item has a higher token.
type lease struct{ ID, Token int64 }

// usage is a service's response about leased items: an item that it refers to, and how.
type usage struct {
	ID    int64  `json:"id"` // 0: the service refers to none of them
	Usage string `json:"uses,omitempty"`

	Detached int64 `json:"detached,omitempty"` // the number of references that were removed
}

// confirmAll asks all users to agree with the deletion of the items. Without leases there is nothing to ask.
func (l *Leases) confirmAll(ctx context.Context, ids []int64) error {
	items, err := l.acquire(ctx, ids)
	if err != nil || len(items) == 0 {
		return err
	}
	if err := l.refuseUsed(ctx, items, ""); err != nil {
		return errors.Join(err, l.update(ctx, "DELETE FROM closing WHERE token = ANY ($1) AND until < 'infinity'", items))
	}
	return l.update(ctx, "UPDATE closing SET agreed = true WHERE token = ANY ($1)", items)
}

// askAll asks all users whether they refer to the items. It takes no leases, so that others may still refer to the items.
func (l *Leases) askAll(ctx context.Context, ids []int64) error {
	items := make([]lease, len(ids))
	for i, id := range ids {
		items[i].ID = id
	}
	return l.refuseUsed(ctx, items, withoutLease)
}

// refuseUsed returns a 409 if a service refers to one of the items.
func (l *Leases) refuseUsed(ctx context.Context, items []lease, detach string) error {
	for _, service := range l.Users {
		found, err := l.askUser(ctx, service, items, detach)
		if err != nil {
			return err
		}
		if found.ID != 0 {
			return problem.New(problem.Conflict, "%s%s %d %s.", strings.ToUpper(l.Noun[:1]), l.Noun[1:], found.ID, found.Usage)
		}
	}
	return nil
}

// acquire starts leases for the items.
func (l *Leases) acquire(ctx context.Context, ids []int64) (items []lease, err error) {
	err = l.DB.InTx(ctx, func(tx *pg.Tx) (err error) {
		tx.Unrecorded("it is recorded once it is done")
		items, err = l.insert(ctx, tx, ids, leaseTTL.String())
		return err
	})
	return items, err
}

// insert returns the leases for ids. Concurrent deleters share a lease. A permanent lease stays as it is and is not
// returned. An empty ttl makes leases permanent.
func (l *Leases) insert(ctx context.Context, tx *pg.Tx, ids []int64, ttl string) (items []lease, err error) {
	rows, err := tx.Query(ctx, `
		WITH item AS (SELECT id FROM `+pgx.Identifier{l.Table}.Sanitize()+` WHERE id = ANY ($2) ORDER BY id FOR UPDATE)
		INSERT INTO closing AS c (type, id, until) SELECT $1, id, CASE $3 WHEN '' THEN 'infinity' ELSE clock_timestamp() + nullif($3, '')::interval END FROM item
		ON CONFLICT (type, id) DO UPDATE SET until = EXCLUDED.until, agreed = c.agreed AND c.until > clock_timestamp(),
			token = CASE WHEN c.until > clock_timestamp() THEN c.token ELSE EXCLUDED.token END
		WHERE c.until < 'infinity' RETURNING id, token`, l.Type, ids, ttl)
	if err == nil {
		items, err = pgx.CollectRows(rows, pgx.RowToStructByPos[lease])
	}
	return items, wrap("insert leases of "+l.Type, err)
}

// AcquirePermanent leases items, with the unit of work, until they are deleted, even if other services refer to them.
// Detach then removes the references. The services hear of the leases before the caller gets a response.
func (l *Leases) AcquirePermanent(ctx context.Context, tx *pg.Tx, ids []int64) error {
	if _, err := l.insert(ctx, tx, ids, ""); err != nil {
		return err
	}
	rows, err := tx.Query(ctx, "SELECT id, token FROM closing WHERE type = $1 AND id = ANY ($2)", l.Type, ids)
	if err != nil {
		return fmt.Errorf("close %s: %w", l.Type, err)
	}
	items, err := pgx.CollectRows(rows, pgx.RowToStructByPos[lease])
	tx.AfterCommit(func(ctx context.Context) (failed error) {
		for _, service := range l.Users {
			_, err := l.askUser(ctx, service, items, detachLater)
			failed = errors.Join(failed, err)
		}
		return failed
	})
	return wrap("insert leases of "+l.Type, err)
}

// Detach makes users remove some of their references to an item with a permanent lease, and returns how many they
// removed. At 0 the item can be deleted.
func (l *Leases) Detach(ctx context.Context, id int64) (detached int64, err error) {
	item := lease{ID: id}
	err = l.DB.QueryRow(ctx, "SELECT token FROM closing WHERE type = $1 AND id = $2 AND until = 'infinity'", l.Type, id).Scan(&item.Token)
	if errors.Is(err, pgx.ErrNoRows) { // it has been deleted
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the lease of %s %d: %w", l.Type, id, err)
	}
	for _, service := range l.Users {
		found, err := l.askUser(ctx, service, []lease{item}, detachNow)
		if err != nil {
			return detached, err
		}
		detached += found.Detached
	}
	if detached > 0 {
		return detached, nil
	}
	return 0, l.update(ctx, "UPDATE closing SET agreed = true WHERE token = ANY ($1)", []lease{item})
}

// The purposes of a request to a user, besides the question whether it refers to the items.
const (
	detachLater = "later" // existing references stay for now, and nobody adds one
	detachNow   = "now"   // remove some of the references to the first item

	withoutLease = "never" // only the question: nothing is leased, and references may be added
)

func (l *Leases) askUser(ctx context.Context, service string, items []lease, detach string) (found usage, err error) {
	ctx, cancel := l.Peers.Limit(ctx, askTimeout)
	defer cancel()
	text, err := json.Marshal(items)
	if err != nil {
		return found, err
	}
	path := leasePath(l.Type) + "?items=" + url.QueryEscape(string(text))
	if detach != "" {
		path += "&detach=" + detach
	}
	if err := l.Peers.Ask(ctx, service, path, &found); err != nil {
		return found, problem.New(problem.Unavailable, "The service %s could not be asked whether it uses the item. Try again.", service).
			Because(err)
	}
	return found, nil
}

func (l *Leases) update(ctx context.Context, sql string, items []lease) error {
	tokens := make([]int64, len(items))
	for i, item := range items {
		tokens[i] = item.Token
	}
	return wrap("update leases of "+l.Type, l.DB.InTx(context.WithoutCancel(ctx), func(tx *pg.Tx) error {
		tx.Unrecorded("it is recorded once it is done")
		_, err := tx.Exec(ctx, sql, tokens)
		return err
	}))
}

// endExpired ends an item's expired lease, so that its deletion has to start again. It waits for a deletion that is
// about to commit.
func endExpired(ctx context.Context, db *pg.DB, kind string, id int64) error {
	return wrap("end the expired lease of "+kind, db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("nothing is deleted")
		_, err := tx.Exec(ctx, "DELETE FROM closing WHERE type = $1 AND id = $2 AND until < clock_timestamp()", kind, id)
		return err
	}))
}

func leasePath(kind string) string { return "/internal/close/" + kind }

type leaseRequest struct {
	Items  string `query:"items" max:"10000"` // up to a hundred leases, as JSON
	Detach string `query:"detach" enum:"later,never,now"`
}

var errInUse = errors.New("the item is in use")

// LeaseRoute tells the items' owner whether they may be deleted. After that, Hold refuses them. If references are to be
// detached, Hold refuses the items in any case.
func (r *Refs) LeaseRoute() rest.Route {
	return rest.Read[leaseRequest, usage]{
		Path:  leasePath(r.Type),
		Guard: guard.Peers(r.Owner),
		Do: func(ctx context.Context, req leaseRequest) (found usage, err error) {
			var items []lease
			if err := json.Unmarshal([]byte(req.Items), &items); err != nil {
				return found, fmt.Errorf("read the leases: %w", err)
			}
			if req.Detach == withoutLease {
				return r.findUsed(ctx, r.DB, items)
			}
			err = r.DB.InTx(ctx, func(tx *pg.Tx) error {
				tx.Unrecorded("it is recorded where it is deleted")
				var name string
				for _, item := range items { // waits for holders; a late request has a lower token
					if req.Detach == detachNow { // the lease is permanent: Hold need not wait for this
						err := tx.QueryRow(ctx, "SELECT name FROM ref WHERE type = $1 AND id = $2 AND closing >= $3", r.Type, item.ID, item.Token).
							Scan(&name)
						if err == nil {
							continue
						}
						if !errors.Is(err, pgx.ErrNoRows) {
							return fmt.Errorf("read the lease of %s %d: %w", r.Type, item.ID, err)
						}
					}
					err := tx.QueryRow(ctx, `
					INSERT INTO ref (type, id, name, version, closing) VALUES ($1, $2, '', 0, $3)
					ON CONFLICT (type, id) DO UPDATE SET closing = greatest(ref.closing, EXCLUDED.closing) RETURNING name`, r.Type, item.ID, item.Token).Scan(&name)
					if err != nil {
						return fmt.Errorf("lease %s %d: %w", r.Type, item.ID, err)
					}
				}
				if req.Detach == detachNow {
					found.Detached, err = r.Detach(ctx, tx, items[0].ID, name)
				}
				if req.Detach != "" {
					return err
				}
				if found, err = r.findUsed(ctx, tx, items); err == nil && found.ID != 0 {
					err = errInUse
				}
				return err
			})
			if errors.Is(err, errInUse) {
				err = nil
			}
			return found, err
		},
	}
}

// findUsed returns the first item that is used here, and how.
func (r *Refs) findUsed(ctx context.Context, q pg.Querier, items []lease) (usage, error) {
	for _, item := range items {
		reason, err := r.FindUsage(ctx, q, item.ID)
		if err != nil {
			return usage{}, fmt.Errorf("find the usage of %s %d: %w", r.Type, item.ID, err)
		}
		if reason != "" {
			return usage{ID: item.ID, Usage: reason}, nil
		}
	}
	return usage{}, nil
}
