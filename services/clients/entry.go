package clients

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
)

// entryRoute returns the route by which gateways ask for a client's entry. It also fills the entry in Redis.
func (s *Service) entryRoute() rest.Route {
	return rest.Read[rest.Item, keycache.Owner]{Path: "/internal/owner/client/{client_id}", Guard: guard.Peers(principal.Gateway),
		Do: func(ctx context.Context, req rest.Item) (keycache.Owner, error) {
			return keycache.Fill(ctx, s.entries, entryName(req.ID), func(ctx context.Context) (owner keycache.Owner, err error) {
				err = s.db.QueryRow(ctx, `
					SELECT NOT suspended, c.name, credentials, credentials_key, ARRAY(SELECT ancestor FROM client_reach WHERE descendant = c.id),
						coalesce(c.integration_id, 0)
					FROM client c JOIN client_view v ON v.id = c.id WHERE c.id = $1`, req.ID).
					Scan(&owner.Active, &owner.Name, &owner.Credentials, &owner.Kept, &owner.Above, &owner.Integration)
				if errors.Is(err, pgx.ErrNoRows) {
					return keycache.Owner{}, nil
				}
				return owner, err
			})
		}}
}

func entryName(id int64) string {
	return keycache.OwnerName(principal.Owner{Type: principal.Client, ID: id})
}

// revoke removes a client's entry from Redis when tx has committed, so that gateways ask again.
func (s *Service) revoke(tx *pg.Tx, id int64) {
	tx.Wake(keycache.Revoked)
	tx.AfterCommit(func(ctx context.Context) error { return s.entries.Remove(ctx, entryName(id)) })
}
