package startup

import (
	"context"
	"fmt"
	"io"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/services/system"
)

func verifyLog(ctx context.Context, c Config, screen io.Writer) error {
	masterKey := c.Backings.MasterKey
	if masterKey.IsZero() {
		var err error
		if masterKey, err = product.KeptMasterKey(c.Backings.Data); err != nil {
			return fmt.Errorf("find the master key: %w", err)
		}
	}
	box, err := system.Definition.NewBox(masterKey)
	if err != nil {
		return err
	}
	return inSchemas(ctx, c, []string{system.Name}, func(ctx context.Context, db *pg.DB) error {
		return system.Verify(ctx, service.Deps{DB: db, Box: box, Settings: c.Settings}, screen)
	})
}
