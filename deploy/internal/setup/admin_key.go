package setup

import (
	"context"
	"fmt"
	"io"

	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/postgres/provision"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/admin"
)

// printAdminKey creates an API key for the first admin, and the admin if there is none. The caller can read all secrets
// anyway, so this needs no other permission.
func printAdminKey(ctx context.Context, c config, stdout io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, bootstrapTimeout)
	defer cancel()
	password, err := c.readSecret(identity.Name + "-password")
	if err != nil {
		return err
	}
	url, err := provision.ServiceURL(c.adminURL(password), rolePrefix, identity.Name, password)
	if err != nil {
		return err
	}
	db, err := pool.Open(ctx, url.Reveal(), 1, pool.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	key, created, err := admin.CreateFirst(ctx, db.DB)
	if err == nil && !created {
		key, _, err = admin.CreateKey(ctx, db.DB)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, key.Reveal())
	return err
}
