package restore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/services/identity/mfa"
	"github.com/ironplane/ironplane/services/identity/person"
)

// findFactors finds the second factors that a restore has brought back. One that was lost or stolen could sign in.
func (o *outcomes) findFactors(ctx context.Context, q pg.Querier) (all []service.RestoredAccess, err error) {
	removed, without := []int64{}, []string{}
	for id, wasRemoved := range o.factors {
		if wasRemoved {
			removed = append(removed, id)
		}
	}
	for owner := range o.without {
		without = append(without, owner.URL())
	}
	rows, err := q.Query(ctx, "SELECT id FROM authenticator_view WHERE id = ANY ($1) OR owner_url = ANY ($2) ORDER BY id", removed, without)
	if err != nil {
		return nil, fmt.Errorf("find authenticators: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("find authenticators: %w", err)
	}
	for _, id := range ids {
		a, err := mfa.AuthenticatorView.Get(ctx, q, id)
		if err != nil {
			return nil, fmt.Errorf("read authenticator %d: %w", id, err)
		}
		all = append(all, newFinding(fmt.Sprintf("authenticator %d (%s) of %s was removed", id, a.Name, a.Owner.URL), removeFactor(id)))
	}
	return all, nil
}

// removeFactor returns the repair that deletes an authenticator.
func removeFactor(id int64) func(context.Context, *pg.Tx) error {
	return func(ctx context.Context, tx *pg.Tx) error {
		a, err := mfa.AuthenticatorView.Get(ctx, tx, id)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "DELETE FROM authenticator WHERE id = $1", id)
		tx.Record(pg.Record{
			Kind:   "auth.verify.auth",
			Action: pg.Deleted,
			Before: a,
			Targets: []pg.Target{
				{Type: "auth/verify/auth", Noun: "authenticator", ID: id, Name: a.Name, Version: a.Version},
				person.Target(a.Account(), a.Owner.Name),
			},
		})
		return err
	}
}
