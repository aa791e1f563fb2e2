package identity

import (
	"context"
	"fmt"

	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/secret"
)

// AnyAdmin tells whether the installation has an admin.
func AnyAdmin(ctx context.Context, q pg.Querier) (any bool, err error) {
	if err := q.QueryRow(ctx, "SELECT EXISTS (SELECT FROM admin)").Scan(&any); err != nil {
		return false, fmt.Errorf("look for an admin: %w", err)
	}
	return any, nil
}

// FirstAdmin makes, in an installation that has no admin, one who holds everything, and answers the key. made is
// false where there is an admin already.
func FirstAdmin(ctx context.Context, db *pg.DB) (key secret.String, made bool, err error) {
	err = db.InTx(ctx, func(tx *pg.Tx) error {
		if err := lockAccounts(ctx, tx); err != nil {
			return err
		}
		exists, err := AnyAdmin(ctx, tx)
		if err != nil {
			return err
		}
		if made = !exists; exists {
			tx.Unrecorded("there is an admin already")
			return nil
		}
		first := principal.Owner{Type: principal.Admin}
		err = tx.QueryRow(ctx, "INSERT INTO admin (username, permissions) VALUES ('admin', $1) RETURNING id", principal.All.Names()).
			Scan(&first.ID)
		if err != nil {
			return err
		}
		key = apikey.New()
		return insertKey(ctx, tx, "first key", key, first)
	})
	if err != nil {
		return secret.String{}, false, fmt.Errorf("make the first admin: %w", err)
	}
	return key, made, nil
}

// AdminKey makes another key for the first of the admins who hold users.admins write and are not disabled, and answers it with the name.
func AdminKey(ctx context.Context, db *pg.DB) (key secret.String, username string, err error) {
	key = apikey.New()
	err = db.InTx(ctx, func(tx *pg.Tx) error {
		owner := principal.Owner{Type: principal.Admin}
		err := tx.QueryRow(ctx, "SELECT id, username FROM admin WHERE permissions @> ARRAY[$1] AND NOT disabled ORDER BY id LIMIT 1 FOR SHARE",
			administers.Names()[0]).Scan(&owner.ID, &username)
		if err != nil {
			return err
		}
		return insertKey(ctx, tx, "made on the command line", key, owner)
	})
	if err != nil {
		return secret.String{}, "", fmt.Errorf("make an admin's key: %w", err)
	}
	return key, username, nil
}
