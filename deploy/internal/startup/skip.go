package startup

import (
	"context"
	"errors"
	"fmt"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/pg"
)

// skipChange lets all services go on that have stopped at a change.
func skipChange(ctx context.Context, c Config) error {
	skipped := false
	err := inSchemas(ctx, c, product.Names(), func(ctx context.Context, db *pg.DB) error {
		err := events.Skip(ctx, db, c.Skip)
		if errors.Is(err, events.ErrNotStopped) {
			return nil
		}
		skipped = skipped || err == nil
		return err
	})
	if err == nil && !skipped {
		return fmt.Errorf("skip %s: %w", c.Skip, events.ErrNotStopped)
	}
	return err
}
