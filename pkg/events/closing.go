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

	"github.com/ironplane/ironplane/pkg/guard"
	"github.com/ironplane/ironplane/pkg/mesh"
	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
)

// Closing is for items whose deletion other services can forbid, because they refer to them. See docs/events.md.
type Closing struct {
	DB    *pg.DB // of the service that has the items
	Peers mesh.Peers
	Type  string // as in Refs
	Noun  string
	Table string
	Users []string // the services with a Refs.Uses
}

// closingTime is how long a deletion may take from the first question until the unit of work that deletes.
const closingTime = 10 * time.Second

// Close makes sure, in the unit of work that deletes them, that nobody refers to items or comes to do so. It is called once
// for all of them, and only for who may delete them, because meanwhile nobody can refer to them.
func (c *Closing) Close(ctx context.Context, tx *pg.Tx, ids []int64) error {
	closed, err := tx.Exec(ctx, "DELETE FROM closing WHERE type = $1 AND id = ANY ($2) AND agreed AND until > clock_timestamp()", c.Type, ids)
	if err != nil {
		return fmt.Errorf("end the closing of %s %v: %w", c.Type, ids, err)
	}
	if closed.RowsAffected() < int64(len(ids)) {
		return pg.RestartAfter(func(ctx context.Context) error { return c.ask(ctx, ids) })
	}
	return nil
}

// closingItem is one that is being deleted, as its users are asked about it.
type closingItem struct{ ID, Token int64 }

// user is an item that is referred to, and how.
type user struct {
	ID   int64  `json:"id"` // 0: none is
	Uses string `json:"uses,omitempty"`
}

// ask has all users agree that the items are deleted.
func (c *Closing) ask(ctx context.Context, ids []int64) error {
	items, err := c.begin(ctx, ids)
	if err != nil || len(items) == 0 {
		return err
	}
	tokens := make([]int64, len(items))
	for i, item := range items {
		tokens[i] = item.Token
	}
	for _, service := range c.Users {
		if err := c.askUser(ctx, service, items); err != nil {
			return errors.Join(err, c.settle(ctx, "DELETE FROM closing WHERE token = ANY ($1)", tokens))
		}
	}
	return c.settle(ctx, "UPDATE closing SET agreed = true WHERE token = ANY ($1)", tokens)
}

// begin notes that the items are being deleted. Of those that somebody else is just deleting, too, the token is his.
func (c *Closing) begin(ctx context.Context, ids []int64) (items []closingItem, err error) {
	err = c.DB.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("it is recorded once it is done")
		rows, err := tx.Query(ctx, `
			WITH item AS (SELECT id FROM `+pgx.Identifier{c.Table}.Sanitize()+` WHERE id = ANY ($2) ORDER BY id FOR UPDATE)
			INSERT INTO closing AS c (type, id, until) SELECT $1, id, clock_timestamp() + $3::interval FROM item
			ON CONFLICT (type, id) DO UPDATE SET until = EXCLUDED.until, agreed = c.agreed AND c.until > clock_timestamp(),
				token = CASE WHEN c.until > clock_timestamp() THEN c.token ELSE EXCLUDED.token END
			RETURNING id, token`, c.Type, ids, closingTime)
		if err != nil {
			return err
		}
		items, err = pgx.CollectRows(rows, pgx.RowToStructByPos[closingItem])
		return err
	})
	return items, wrap("close "+c.Type, err)
}

func (c *Closing) askUser(ctx context.Context, service string, items []closingItem) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	text, err := json.Marshal(items)
	if err != nil {
		return err
	}
	var found user
	if err := c.Peers.Ask(ctx, service, closePath(c.Type)+"?items="+url.QueryEscape(string(text)), &found); err != nil {
		return problem.New(problem.Unavailable, "Whether %s uses it cannot be found out right now.", service).Because(err)
	}
	if found.ID != 0 {
		return problem.New(problem.Conflict, "%s%s %d %s.", strings.ToUpper(c.Noun[:1]), c.Noun[1:], found.ID, found.Uses)
	}
	return nil
}

func (c *Closing) settle(ctx context.Context, sql string, tokens []int64) error {
	return wrap("settle the closing of "+c.Type, c.DB.InTx(context.WithoutCancel(ctx), func(tx *pg.Tx) error {
		tx.Unrecorded("it is recorded once it is done")
		_, err := tx.Exec(ctx, sql, tokens)
		return err
	}))
}

// lift ends the closing of an item whose time is over, so that its deletion has to begin anew. It waits for one that is
// about to commit.
func lift(ctx context.Context, db *pg.DB, kind string, id int64) error {
	return wrap("lift the closing of "+kind, db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("nothing is deleted")
		_, err := tx.Exec(ctx, "DELETE FROM closing WHERE type = $1 AND id = $2 AND until < clock_timestamp()", kind, id)
		return err
	}))
}

func closePath(kind string) string { return "/internal/close/" + kind }

type closeItems struct {
	Items string `query:"items" max:"10000"` // []closingItem as JSON, a hundred
}

var errUsed = errors.New("it is used")

// CloseRoute answers the owner whether items may be deleted. Once it has said so, Hold refuses them.
func (r *Refs) CloseRoute() rest.Route {
	return rest.Read[closeItems, user]{Path: closePath(r.Type), Guard: guard.Peers(r.Owner), Do: func(ctx context.Context, req closeItems) (found user, err error) {
		var items []closingItem
		if err := json.Unmarshal([]byte(req.Items), &items); err != nil {
			return found, fmt.Errorf("read which items: %w", err)
		}
		err = r.DB.InTx(ctx, func(tx *pg.Tx) error {
			tx.Unrecorded("it is recorded where it is deleted")
			for _, item := range items { // which waits for those who hold it; one that comes late has a lower token
				_, err := tx.Exec(ctx, `
					INSERT INTO ref (type, id, name, version, closing) VALUES ($1, $2, '', 0, $3)
					ON CONFLICT (type, id) DO UPDATE SET closing = greatest(ref.closing, EXCLUDED.closing)`, r.Type, item.ID, item.Token)
				if err != nil {
					return fmt.Errorf("close %s %d: %w", r.Type, item.ID, err)
				}
			}
			for _, item := range items {
				uses, err := r.Uses(ctx, tx, item.ID)
				if found = (user{item.ID, uses}); err != nil || uses != "" {
					return errors.Join(err, errUsed)
				}
			}
			found = user{}
			return nil
		})
		if found.Uses != "" {
			return found, nil
		}
		return user{}, err
	}}
}
