package product

import (
	"context"
	"fmt"
	"io"

	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/process/host"
)

// Reseal seals and signs anew, in all schemas, with the newest master key, what was with an older one, and says so. It
// may be done while everything serves.
func Reseal(ctx context.Context, admin, masterKey secret.String, screen io.Writer) error {
	for _, d := range Services {
		box, err := d.NewBox(masterKey)
		if err != nil {
			return err
		}
		if box == nil {
			continue
		}
		db, err := OpenSchema(ctx, admin, d.Name)
		if err != nil {
			return err
		}
		err = host.Reseal(ctx, d, db.DB, box, screen)
		db.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", d.Name, err)
		}
	}
	return nil
}
