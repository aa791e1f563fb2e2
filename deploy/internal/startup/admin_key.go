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

// printAdminKey creates another key for the first admin, and prints it. The command needs no key: it reads the data folder or
// the database, which hold everything anyway.
func printAdminKey(ctx context.Context, c Config, screen io.Writer) error {
	return inSchemas(ctx, c, []service.Definition{identity.Definition}, func(ctx context.Context, _ service.Definition, db *pg.DB) error {
		key, username, err := admin.CreateKey(ctx, db)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(screen, "A new key of the admin %s, shown only now:\n\n  %s\n\n", username, key.Reveal())
		return err
	})
}
