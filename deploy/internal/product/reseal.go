package product

import (
	"context"
	"fmt"
	"io"

	"github.com/ironplane/ironplane/pkg/runtime/host"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
)

// Reseal seals and signs again, with the newest master key, what older keys sealed and signed in all schemas. It prints how
// much it did. The services may run meanwhile.
func Reseal(ctx context.Context, admin, masterKey secret.String, screen io.Writer) error {
	for _, d := range Services {
		if len(d.Purposes()) == 0 {
			continue
		}
		key, err := seal.Derive(masterKey, d.Name, d.Purposes()...)
		if err != nil {
			return err
		}
		var deps service.Deps
		if err := host.Unlock(d, &deps, key); err != nil {
			return err
		}
		db, err := OpenSchema(ctx, admin, d.Name)
		if err != nil {
			return err
		}
		deps.DB = db.DB
		err = host.Reseal(ctx, d, deps, screen)
		db.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", d.Name, err)
		}
	}
	return nil
}
