package startup

import (
	"context"
	"errors"
	"fmt"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/runtime/host"
	"github.com/ironplane/ironplane/pkg/service"
)

// skipChange lets all services skip the configured change at which they have stopped.
func skipChange(ctx context.Context, c Config) error {
	masterKey, err := readMasterKey(c)
	if err != nil {
		return err
	}
	skipped := false
	err = inSchemas(ctx, c, product.Services, func(ctx context.Context, d service.Definition, db *pg.DB) error {
		box, err := d.NewBox(masterKey)
		if err != nil {
			return err
		}
		err = host.SkipChange(ctx, d, service.Deps{DB: db, Box: box}, c.Skip)
		if errors.Is(err, host.ErrNotStopped) {
			return nil
		}
		skipped = skipped || err == nil
		return err
	})
	if err == nil && !skipped {
		return fmt.Errorf("skip %s: %w", c.Skip, host.ErrNotStopped)
	}
	return err
}
