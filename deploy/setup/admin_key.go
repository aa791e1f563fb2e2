package main

import (
	"context"
	"fmt"
	"io"

	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/postgres/provision"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/admin"
)

// printAdminKey makes the first admin, if there is none yet, and a key. Who may do this can read all secrets anyway.
func printAdminKey(ctx context.Context, c config, screen io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, bootstrapTime)
	defer cancel()
	password, err := c.kept(identity.Name + "-password")
	if err != nil {
		return err
	}
	url, err := provision.ServiceURL(c.administrator(password), rolePrefix, identity.Name, password)
	if err != nil {
		return err
	}
	db, err := pool.Open(ctx, url.Reveal(), 1, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	key, made, err := admin.CreateFirst(ctx, db.DB)
	if err == nil && !made {
		key, _, err = admin.CreateKey(ctx, db.DB)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(screen, key.Reveal())
	return err
}
