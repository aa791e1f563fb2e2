package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/backing"
	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/identity"
)

// printAdminKey makes a key for who lost the last one. Whoever may do this can read the whole database anyway.
func printAdminKey(ctx context.Context, c config, screen io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	admin := c.DatabaseURL
	if admin.IsZero() {
		parts := &backings{}
		defer func() { err = errors.Join(err, parts.stop(ctx)) }()
		if admin, err = parts.runningPostgres(ctx, c); err != nil {
			return err
		}
	}
	u, err := url.Parse(admin.Reveal())
	if err != nil {
		return errors.New("DATABASE_URL is not a URL") // err would show the password
	}
	query := u.Query()
	query.Set("search_path", identity.Name)
	u.RawQuery = query.Encode()
	db, err := pg.Open(ctx, u.String(), 1)
	if err != nil {
		return err
	}
	defer db.Close()
	key, username, err := identity.AdminKey(ctx, db)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(screen, "A new key of the admin %s, which is shown this once:\n\n  %s\n\n", username, key.Reveal())
	return err
}

// runningPostgres is the Postgres of the data folder: that of the standalone that runs, or one that is started.
func (b *backings) runningPostgres(ctx context.Context, c config) (secret.String, error) {
	if _, err := os.Stat(product.PostgresFolder(c.Data)); err != nil {
		return secret.String{}, fmt.Errorf("there is no installation in %s; IRONPLANE_DATA names its folder", c.Data)
	}
	admin, err := b.startPostgres(ctx, c)
	if !errors.Is(err, backing.ErrInUse) {
		return admin, err
	}
	url, err := os.ReadFile(urlFile(c))
	if err != nil {
		return secret.String{}, fmt.Errorf("find the Postgres that runs: %w", err)
	}
	return secret.New(string(url)), nil
}
