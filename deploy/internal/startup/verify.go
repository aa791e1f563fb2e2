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

// verifyLog checks that the log was not altered, and prints what it found.
func verifyLog(ctx context.Context, c Config, screen io.Writer) error {
	masterKey, err := readMasterKey(c)
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

// reseal seals and signs again, with the newest master key, what older keys sealed and signed.
func reseal(ctx context.Context, c Config, screen io.Writer) error {
	masterKey, err := readMasterKey(c)
	if err != nil {
		return err
	}
	return asAdministrator(ctx, c, func(ctx context.Context, admin secret.String) error {
		return product.Reseal(ctx, admin, masterKey, screen)
	})
}

// readMasterKey returns the configured master key, or the one in the data folder.
func readMasterKey(c Config) (secret.String, error) {
	if !c.Datastores.MasterKey.IsZero() {
		return c.Datastores.MasterKey, nil
	}
	key, err := product.ReadMasterKey(c.Datastores.Data)
	if err != nil {
		return key, fmt.Errorf("read the master key: %w", err)
	}
	return key, nil
}
