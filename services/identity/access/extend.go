package access

import (
	"context"
	"fmt"

	"github.com/ironplane/ironplane/pkg/auth/knowngrants"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// GrantNew grants the permissions that are new in this version. Admins, identity providers and key bounds get them if they covered
// all earlier ones. It does nothing if an instance of this version or of a newer one has run before.
func GrantNew(ctx context.Context, db *pg.DB) error {
	e, err := knowngrants.Find(ctx, db)
	if err != nil || e.Added == 0 {
		return err
	}
	return db.InTx(ctx, func(tx *pg.Tx) error { return Extend(ctx, tx) })
}

// Extend is GrantNew in a unit of work. Redis may hold entries without the new permissions for another 5 seconds.
func Extend(ctx context.Context, tx *pg.Tx) error {
	tx.Unrecorded("no set covered every permission")
	if err := Lock(ctx, tx); err != nil {
		return err
	}
	e, err := knowngrants.Learn(ctx, tx)
	if err != nil || e.Added == 0 {
		return err
	}
	if err := e.Extend(ctx, tx, "admin", "username", "admin", pg.Target{Type: "admin", Noun: "admin"}); err != nil {
		return err
	}
	provider := pg.Target{Type: "auth/provider", Noun: "identity provider"}
	if err := e.Extend(ctx, tx, "openid_provider", "name", "auth.provider", provider); err != nil {
		return err
	}
	// A wider bound alone grants nothing. The record of the owner's new permissions suffices.
	for _, table := range []string{"api_key SET version = version + 1,", "sso_code SET"} {
		_, err := tx.Exec(ctx, "UPDATE "+table+" bound = bound || $2::text[] WHERE bound @> $1", e.Earlier.Names(), e.Added.Names())
		if err != nil {
			return fmt.Errorf("extend bounds: %w", err)
		}
	}
	return nil
}
