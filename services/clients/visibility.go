package clients

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/rest"
)

// holdersAndClients admits callers with the permission users.clients, and clients. The view client_seen has the rows that a client
// sees. What a client may change, each operation checks.
var holdersAndClients = guard.HasOrClient(permission.UsersClients)

// callingClient returns the caller's id if the caller is a client, else 0.
func callingClient(ctx context.Context) int64 { return principal.FromContext(ctx).Client() }

// whereVisible returns the condition on client_seen for the rows that the caller sees.
func whereVisible(ctx context.Context) pg.Condition {
	return pg.Condition{SQL: "viewer = $1", Args: []any{callingClient(ctx)}, PerRow: true}
}

// whereReadable returns the condition for the clients that the caller reads with all members.
func whereReadable(ctx context.Context) []pg.Condition {
	caller := callingClient(ctx)
	if caller == 0 {
		return nil
	}
	return []pg.Condition{{SQL: "id IN (SELECT r.id FROM client_reached r WHERE r.viewer = $1)", Args: []any{caller}}}
}

// checkLinkAccess checks that the caller may access the links of a client. It may read the links of each client that it reads with
// all members, and change its own.
func checkLinkAccess(ctx context.Context, q pg.Querier, client int64, a permission.Access) error {
	var canRead bool
	err := q.QueryRow(ctx, "SELECT $2::bigint = 0 OR EXISTS (SELECT FROM client_reached r WHERE r.viewer = $2 AND r.id = $1) "+
		"FROM client WHERE id = $1", client, callingClient(ctx)).
		Scan(&canRead)
	if err == nil && !canRead {
		err = pgx.ErrNoRows
	}
	if err == nil && a == permission.Write {
		err = checkOwnLinks(ctx, q, client)
	}
	return err
}

// checkOwnLinks returns a 403 for a client that changes another client's links, and for an integration that changes those of a
// client that is not its own.
func checkOwnLinks(ctx context.Context, q pg.Querier, client int64) error {
	if caller := callingClient(ctx); caller != 0 && caller != client {
		return problem.New(problem.Forbidden, "A client can change only its own links.")
	}
	return checkIntegrationOwns(ctx, q, client)
}

// checkReadable returns an error if a client writes to accounts that it does not read with all members.
func checkReadable(ctx context.Context, tx *pg.Tx, ids []int64, _ *clientBody) error {
	caller := callingClient(ctx)
	if caller == 0 || len(ids) == 0 {
		return nil
	}
	var canRead int
	err := tx.QueryRow(ctx, "SELECT count(DISTINCT id) FROM client_reached WHERE viewer = $1 AND id = ANY ($2)", caller, ids).Scan(&canRead)
	if err != nil {
		return fmt.Errorf("count the accounts that the client reads: %w", err)
	}
	if canRead == len(ids) {
		return nil
	}
	return errUnreadable(ctx, tx, ids)
}

// errUnreadable returns the error for a caller that writes to clients which it does not read with all members: a 403 for accounts
// that the caller has named itself, else a 404.
func errUnreadable(ctx context.Context, q pg.Querier, ids []int64) error {
	var n int
	err := q.QueryRow(ctx, "SELECT count(*) FROM client_seen WHERE viewer = $1 AND id = ANY ($2)", callingClient(ctx), ids).Scan(&n)
	if err == nil && n == len(ids) {
		return problem.New(problem.Forbidden, "A client can change only accounts that it has created.")
	}
	return errors.Join(err, pgx.ErrNoRows)
}

// reachQuery names two clients.
type reachQuery struct {
	Above  int64 `query:"above"`
	Client int64 `query:"client"`
}

// reachRoute returns the route by which other services ask whether a client is above another one.
func (s *Service) reachRoute() rest.Route {
	return rest.Read[reachQuery, credentials.Reach]{
		Path:  credentials.ReachPath,
		Guard: guard.Peers("identity", "network", "pxe", "system"),
		Do: func(ctx context.Context, req reachQuery) (found credentials.Reach, err error) {
			err = s.db.QueryRow(ctx, `
				SELECT EXISTS (SELECT FROM client_reach WHERE ancestor = $1 AND descendant = $2),
					coalesce((SELECT id FROM sub_link WHERE client_id = $1 AND child_id = $2 AND kind <> 'named'), 0)`, req.Above, req.Client).
				Scan(&found.Whole, &found.Link)
			if err != nil {
				err = fmt.Errorf("look for links from client %d to client %d: %w", req.Above, req.Client, err)
			}
			return found, err
		},
	}
}
