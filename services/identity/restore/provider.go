package restore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/services/identity/openid"
)

// findProviders finds the identity providers that a restore has brought back, or whose edits it has undone.
func (o *outcomes) findProviders(ctx context.Context, q pg.Querier) (all []service.RestoredAccess, err error) {
	for _, id := range slices.Sorted(maps.Keys(o.providers)) {
		p, err := openid.ProviderView.Get(ctx, q, id)
		if errors.Is(err, pgx.ErrNoRows) || err == nil && p.Disabled && !o.providers[id] {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read identity provider %d: %w", id, err)
		}
		label := fmt.Sprintf("identity provider %d (%s)", id, p.Name)
		if o.providers[id] {
			all = append(all, newFinding(label+" was deleted", changeProvider(id, "DELETE FROM openid_provider WHERE id = $1", pg.Deleted)))
		} else {
			all = append(
				all,
				newFinding(
					label+" was edited: check it before you enable it",
					changeProvider(id, "UPDATE openid_provider SET version = version + 1, disabled = true WHERE id = $1", pg.Edited),
				),
			)
		}
	}
	return all, nil
}

// changeProvider returns the repair that deletes or disables an identity provider.
func changeProvider(id int64, sql string, action pg.Action) func(context.Context, *pg.Tx) error {
	return func(ctx context.Context, tx *pg.Tx) error {
		p, err := openid.ProviderView.Get(ctx, tx, id)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, sql, id); err != nil {
			return err
		}
		before := p
		record := pg.Record{Kind: "auth.provider", Action: action, Before: before}
		if action == pg.Edited {
			p.Version, p.Disabled = p.Version+1, true
			record.After = p
		}
		record.Targets = []pg.Target{{Type: "auth/provider", Noun: "identity provider", ID: id, Name: p.Name, Version: p.Version}}
		tx.Record(record)
		return nil
	}
}
