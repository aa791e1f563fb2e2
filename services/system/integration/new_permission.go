package integration

import (
	"context"

	"github.com/ironplane/ironplane/pkg/auth/knowngrants"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// GrantNewPermissions gives the permissions that this version of the program brings to integrations that held every earlier
// one. It does nothing where an instance of this version or a newer one has run before.
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
