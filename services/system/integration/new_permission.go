package integration

import (
	"context"

	"github.com/ironplane/ironplane/pkg/auth/knowngrants"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// GrantNewPermissions grants the permissions that are new in this version to integrations that held all earlier ones. It
// does nothing if this version or a newer one ran before.
func GrantNewPermissions(ctx context.Context, db *pg.DB) error {
	if e, err := knowngrants.Find(ctx, db); err != nil || e.Added == 0 {
		return err
	}
	return db.InTx(ctx, func(tx *pg.Tx) error {
		tx.Unrecorded("no integration held every permission")
		e, err := knowngrants.Learn(ctx, tx)
		if err != nil || e.Added == 0 {
			return err
		}
		return e.Extend(ctx, tx, "integration", "name", "integration", pg.Target{Type: "integration", Noun: "integration"})
	})
}
