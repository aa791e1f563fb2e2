package startup

import (
	"context"
	"fmt"
	"io"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/services/system"
)

func verifyLog(ctx context.Context, c Config, screen io.Writer) error {
	masterKey, err := keptMasterKey(c)
	if err != nil {
		return err
	}
	return inSchemas(ctx, c, []service.Definition{system.Definition}, func(ctx context.Context, d service.Definition, db *pg.DB) error {
		box, err := d.NewBox(masterKey)
		if err != nil {
			return err
		}
		return system.Verify(ctx, service.Deps{DB: db, Box: box, Settings: c.Settings}, screen)
	})
}

func reseal(ctx context.Context, c Config, screen io.Writer) error {
	masterKey, err := keptMasterKey(c)
	if err != nil {
		return err
	}
	return asAdministrator(ctx, c, func(ctx context.Context, admin secret.String) error {
		return product.Reseal(ctx, admin, masterKey, screen)
	})
}

// keptMasterKey is the master key that the installation has already.
func keptMasterKey(c Config) (secret.String, error) {
	if !c.Backings.MasterKey.IsZero() {
		return c.Backings.MasterKey, nil
	}
	key, err := product.KeptMasterKey(c.Backings.Data)
	if err != nil {
		return key, fmt.Errorf("find the master key: %w", err)
	}
	return key, nil
}
