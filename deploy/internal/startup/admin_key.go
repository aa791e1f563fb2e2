package startup

import (
	"context"
	"fmt"
	"io"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/admin"
)

// printAdminKey makes a key for who lost the last one. Whoever may do this can read the whole database anyway.
func printAdminKey(ctx context.Context, c Config, screen io.Writer) error {
	return inSchemas(ctx, c, []service.Definition{identity.Definition}, func(ctx context.Context, _ service.Definition, db *pg.DB) error {
		key, username, err := admin.CreateKey(ctx, db)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(screen, "A new key of the admin %s, which is shown this once:\n\n  %s\n\n", username, key.Reveal())
		return err
	})
}
