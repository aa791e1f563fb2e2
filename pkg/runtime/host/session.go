package host

import (
	"context"

	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/service"
)

// ensureSession gives the service's role the settings that it lacks, and has the pool use them.
func ensureSession(ctx context.Context, d service.Definition, db *pool.Pool) error {
	if pool.CheckSession(ctx, db.DB, d.Name, d.Parameters) == nil {
		return nil
	}
	conn, err := db.Connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := pool.EnsureSession(ctx, conn, d.Name, d.Parameters); err != nil {
		return err
	}
	db.Renew()
	return nil
}
