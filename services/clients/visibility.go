package clients

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
)

// holdersAndClients lets those through who hold users.clients, and clients: what is there for them is in client_seen, and what they
// may write each operation says.
var holdersAndClients = guard.HasOrClient(permission.UsersClients)

// callingClient is the caller, if it is a client; else 0.
func callingClient(ctx context.Context) int64 { return principal.From(ctx).Client() }

// whereVisible is the condition which rows of client_seen are the caller's.
func whereVisible(ctx context.Context) pg.Condition {
	return pg.Condition{SQL: "viewer = $1", Args: []any{callingClient(ctx)}, Each: true}
}

// whereReadable is the condition which clients the caller reads whole.
func whereReadable(ctx context.Context) []pg.Condition {
	caller := callingClient(ctx)
	if caller == 0 {
		return nil
	}
	return []pg.Condition{{SQL: "id IN (SELECT r.id FROM client_reached r WHERE r.viewer = $1)", Args: []any{caller}}}
}

// checkLinkAccess says whether the caller may do this to the links of a client: read them where it reads the client whole, and write
// its own.
func checkLinkAccess(ctx context.Context, q pg.Querier, client int64, a permission.Access) error {
	var canRead bool
	err := q.QueryRow(ctx, "SELECT $2::bigint = 0 OR EXISTS (SELECT FROM client_reached r WHERE r.viewer = $2 AND r.id = $1) "+
		"FROM client WHERE id = $1", client, callingClient(ctx)).
		Scan(&canRead)
	if err == nil && !canRead {
		err = pgx.ErrNoRows
	}
	if err == nil && a == permission.Write {
		err = checkOwnLinks(ctx, client)
	}
	return err
}

func checkOwnLinks(ctx context.Context, client int64) error {
	if caller := callingClient(ctx); caller != 0 && caller != client {
		return problem.New(problem.Forbidden, "A client writes its own links alone.")
	}
	return nil
}

// checkReadable refuses a client that writes to accounts that it does not read whole.
func checkReadable(ctx context.Context, tx *pg.Tx, ids []int64, _ *clientBody) error {
	caller := callingClient(ctx)
	if caller == 0 || len(ids) == 0 {
		return nil
	}
	var canRead int
	err := tx.QueryRow(ctx, "SELECT count(DISTINCT id) FROM client_reached WHERE viewer = $1 AND id = ANY ($2)", caller, ids).Scan(&canRead)
	if err != nil {
		return fmt.Errorf("look which accounts the client reads: %w", err)
	}
	if canRead == len(ids) {
		return nil
	}
	return errUnreadable(ctx, tx, ids)
}

// errUnreadable is what a caller is told who writes to clients that it does not read whole: of those that it has named, that it may not.
func errUnreadable(ctx context.Context, q pg.Querier, ids []int64) error {
	var n int
	err := q.QueryRow(ctx, "SELECT count(*) FROM client_seen WHERE viewer = $1 AND id = ANY ($2)", callingClient(ctx), ids).Scan(&n)
	if err == nil && n == len(ids) {
		return problem.New(problem.Forbidden, "The account is not one that the client has created.")
	}
	return errors.Join(err, pgx.ErrNoRows)
}
