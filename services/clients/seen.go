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

// orClient lets those through who hold users.clients, and clients: what is there for them is in client_seen, and what they
// may write each operation says.
var orClient = guard.HasOrClient(permission.UsersClients)

// callingClient is the caller, if it is a client; else 0.
func callingClient(ctx context.Context) int64 { return principal.From(ctx).Client() }

// seen is the condition which rows of client_seen are the caller's.
func seen(ctx context.Context) pg.Condition {
	return pg.Condition{SQL: "viewer = $1", Args: []any{callingClient(ctx)}, Each: true}
}

// reached is the condition which clients the caller reads whole.
func reached(ctx context.Context) []pg.Condition {
	me := callingClient(ctx)
	if me == 0 {
		return nil
	}
	return []pg.Condition{{SQL: "id IN (SELECT r.id FROM client_reached r WHERE r.viewer = $1)", Args: []any{me}}}
}

// below says whether the caller may do this to the links of a client: read them where it reads the client whole, and write
// its own.
func below(ctx context.Context, q pg.Querier, client int64, a permission.Access) error {
	var whole bool
	err := q.QueryRow(ctx, "SELECT $2::bigint = 0 OR EXISTS (SELECT FROM client_reached r WHERE r.viewer = $2 AND r.id = $1) "+
		"FROM client WHERE id = $1", client, callingClient(ctx)).
		Scan(&whole)
	if err == nil && !whole {
		err = pgx.ErrNoRows
	}
	if err == nil && a == permission.Write {
		err = onlyOwn(ctx, client)
	}
	return err
}

func onlyOwn(ctx context.Context, client int64) error {
	if me := callingClient(ctx); me != 0 && me != client {
		return problem.New(problem.Forbidden, "A client writes its own links alone.")
	}
	return nil
}

// mayWrite refuses a client that writes to accounts that it does not read whole.
func mayWrite(ctx context.Context, tx *pg.Tx, ids []int64, _ *clientBody) error {
	me := callingClient(ctx)
	if me == 0 || len(ids) == 0 {
		return nil
	}
	var whole int
	err := tx.QueryRow(ctx, "SELECT count(DISTINCT id) FROM client_reached WHERE viewer = $1 AND id = ANY ($2)", me, ids).Scan(&whole)
	if err != nil {
		return fmt.Errorf("look which accounts the client reads: %w", err)
	}
	if whole == len(ids) {
		return nil
	}
	return unseen(ctx, tx, ids)
}

// unseen is what a caller is told who writes to clients that it does not read whole: of those that it has named, that it may not.
func unseen(ctx context.Context, q pg.Querier, ids []int64) error {
	var n int
	err := q.QueryRow(ctx, "SELECT count(*) FROM client_seen WHERE viewer = $1 AND id = ANY ($2)", callingClient(ctx), ids).Scan(&n)
	if err == nil && n == len(ids) {
		return problem.New(problem.Forbidden, "The account is not one that the client has created.")
	}
	return errors.Join(err, pgx.ErrNoRows)
}
