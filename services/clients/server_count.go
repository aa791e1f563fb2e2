package clients

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/mesh"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/wake"
)

const (
	// awayInterval is how often network is asked while it is away.
	awayInterval = time.Second
	// countTimeout is how long network may take to count.
	countTimeout = 3 * time.Second
	// maxCounted is how many clients one question to network names.
	maxCounted = 500
)

// serverCounts keeps the number of servers of each client. When network announces a change, its clients are counted anew. So an
// event that comes twice, or late, does no harm.
type serverCounts struct {
	db    *pg.DB
	peers mesh.Peers
	due   chan struct{} // holds one value if this instance has scheduled counts
}

func newServerCounts(db *pg.DB, peers mesh.Peers) *serverCounts {
	return &serverCounts{db, peers, make(chan struct{}, 1)}
}

// consumer follows the assignments of IP entities.
func (c *serverCounts) consumer() *events.Consumer {
	return &events.Consumer{Source: "network", Kind: "entity", Batched: true,
		Apply: func(ctx context.Context, tx *pg.Tx, changes []events.Event) error {
			var owners []int64
			for _, e := range changes {
				for _, text := range []json.RawMessage{e.Before, e.After} {
					var entity struct{ Owner struct{ ID int64 } }
					if text == nil {
						continue
					}
					if err := json.Unmarshal(text, &entity); err != nil {
						return fmt.Errorf("read the owner in change %d: %w", e.Seq, err)
					}
					if entity.Owner.ID != 0 {
						owners = append(owners, entity.Owner.ID)
					}
				}
			}
			if len(owners) == 0 {
				return nil
			}
			return c.scheduleRecount(ctx, tx, "SELECT DISTINCT unnest($1::bigint[])", owners)
		},
		Reconcile: func(ctx context.Context, tx *pg.Tx, _ events.Restore) error {
			return c.scheduleRecount(ctx, tx, "SELECT id FROM client")
		}}
}

// scheduleRecount schedules a count for the clients that selectSQL selects, when tx has committed. A client that is being counted
// at the moment is counted again.
func (c *serverCounts) scheduleRecount(ctx context.Context, tx *pg.Tx, selectSQL string, args ...any) error {
	_, err := tx.Exec(ctx, "INSERT INTO client_recount "+selectSQL+" ORDER BY 1 ON CONFLICT DO NOTHING", args...)
	if err != nil {
		return fmt.Errorf("schedule counts of servers: %w", err)
	}
	tx.AfterCommit(func(context.Context) error {
		select {
		case c.due <- struct{}{}:
		default:
		}
		return nil
	})
	return nil
}

// loop returns the task that counts what is due. Now and then it also counts what other instances have left.
func (c *serverCounts) loop() service.Task {
	return service.Task{Name: "count-servers", Run: func(ctx context.Context) error {
		return wake.Repeat(ctx, c.due, 0, func(ctx context.Context) (time.Duration, error) {
			for {
				more, err := c.countDue(ctx)
				switch {
				case errors.Is(err, mesh.ErrUnavailable):
					return awayInterval, nil
				case err != nil:
					return 0, fmt.Errorf("count servers: %w", err)
				case !more:
					return wake.Interval, nil
				}
			}
		})
	}}
}

// countDue counts some of the clients that are due, and reports whether there are more. It holds the clients' rows meanwhile: two
// instances that count the same client could otherwise write their results in the wrong order.
func (c *serverCounts) countDue(ctx context.Context) (more bool, err error) {
	err = c.db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("the change is recorded by network")
		rows, err := tx.Query(
			ctx,
			"DELETE FROM client_recount WHERE id IN (SELECT id FROM client_recount ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED) RETURNING id",
			maxCounted,
		)
		if err != nil {
			return err
		}
		clients, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if more = len(clients) == maxCounted; err != nil || len(clients) == 0 {
			return err
		}
		tx.Wake(wake.Changes) // the system service counts the servers of integrations
		counts, err := c.askCounts(ctx, clients)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `
			INSERT INTO client_server_count (id, servers)
			SELECT c.id, n.servers FROM unnest($1::bigint[], $2::bigint[]) n (id, servers)
			JOIN (SELECT id FROM client WHERE id = ANY ($1) ORDER BY id FOR KEY SHARE) c ON c.id = n.id -- a client may just have been deleted
			ON CONFLICT (id) DO UPDATE SET servers = EXCLUDED.servers`, clients, counts)
		return err
	})
	return more && err == nil, err
}

// askCounts asks network for the number of servers of each client, in the order of clients.
func (c *serverCounts) askCounts(ctx context.Context, clients []int64) (counts []int64, err error) {
	ctx, cancel := c.peers.Limit(ctx, countTimeout)
	defer cancel()
	text, err := json.Marshal(clients)
	if err != nil {
		return nil, err
	}
	err = c.peers.Ask(ctx, "network", "/internal/client-servers?clients="+url.QueryEscape(string(text)), &counts)
	if err == nil && len(counts) != len(clients) {
		err = fmt.Errorf("network returned the servers of %d clients, want %d", len(counts), len(clients))
	}
	return counts, err
}

// integrationServers is how many servers the clients of an integration have.
type integrationServers struct {
	Integration int64 `json:"integration"`
	Servers     int64 `json:"servers"`
}

// integrationsRoute returns the route by which the system service asks how many servers the clients of each integration have.
func (c *serverCounts) integrationsRoute() rest.Route {
	return rest.Read[rest.None, []integrationServers]{
		Path:  "/internal/integration-servers",
		Guard: guard.Peers("system"),
		Do: func(ctx context.Context, _ rest.None) ([]integrationServers, error) {
			rows, err := c.db.Query(ctx, `SELECT c.integration_id, sum(n.servers)::bigint FROM client c JOIN client_server_count n ON n.id = c.id
				WHERE c.integration_id IS NOT NULL AND n.servers > 0 GROUP BY 1 ORDER BY 1`)
			if err != nil {
				return nil, fmt.Errorf("count the servers of integrations: %w", err)
			}
			return pgx.AppendRows([]integrationServers{}, rows, pgx.RowToStructByPos[integrationServers])
		},
	}
}
