package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"

	"github.com/ironplane/ironplane/deploy/internal/backings"
	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/services/identity"
)

// printAdminKey makes a key for who lost the last one. Whoever may do this can read the whole database anyway.
func printAdminKey(ctx context.Context, c config, screen io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, backings.StartTime)
	defer cancel()
	parts := &backings.Backings{}
	defer func() { err = errors.Join(err, parts.Stop(ctx)) }()
	admin, err := parts.Administrator(ctx, c.Backings)
	if err != nil {
		return err
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
