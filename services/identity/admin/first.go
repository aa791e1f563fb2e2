package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/identity/access"
	"github.com/ironplane/ironplane/services/identity/keys"
)

// Exists reports whether the installation has an admin.
func Exists(ctx context.Context, q pg.Querier) (any bool, err error) {
	if err := q.QueryRow(ctx, "SELECT EXISTS (SELECT FROM admin)").Scan(&any); err != nil {
		return false, fmt.Errorf("find out whether there is an admin: %w", err)
	}
	return any, nil
}

// CreateFirst creates the first admin, with every permission, and returns its key. created is false if the installation has an
// admin already.
func CreateFirst(ctx context.Context, db *pg.DB) (key secret.String, created bool, err error) {
	err = db.InTx(ctx, func(tx *pg.Tx) error {
		if err := access.Lock(ctx, tx); err != nil {
			return err
		}
		exists, err := Exists(ctx, tx)
		if err != nil {
			return err
		}
		if created = !exists; exists {
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
		return keys.Insert(ctx, tx, "first key", key, first)
	})
	if err != nil {
		return secret.String{}, false, fmt.Errorf("create the first admin: %w", err)
	}
	return key, created, nil
}

// recoveryName is the username of the admin that CreateKey creates.
const recoveryName = "recovery"

// CreateKey creates another key for the first admin that holds every permission and is not disabled. It returns the key and the
// admin's username. If there is no such admin, it creates one. A key that lacks a permission could not grant it, and granting more
// to an existing account would also extend that account's other keys.
func CreateKey(ctx context.Context, db *pg.DB) (key secret.String, username string, err error) {
	key = apikey.New()
	err = db.InTx(ctx, func(tx *pg.Tx) error {
		if err := access.Extend(ctx, tx); err != nil {
			return err
		}
		owner := principal.Owner{Type: principal.Admin}
		err := tx.QueryRow(ctx, "SELECT id, username FROM admin WHERE permissions @> $1 AND NOT disabled ORDER BY id LIMIT 1 FOR SHARE",
			principal.All.Names()).Scan(&owner.ID, &username)
		if errors.Is(err, pgx.ErrNoRows) {
			owner.ID, username, err = createRecoveryAdmin(ctx, tx)
		}
		if err != nil {
			return err
		}
		return keys.Insert(ctx, tx, "created on the command line", key, owner)
	})
	if err != nil {
		return secret.String{}, "", fmt.Errorf("create an admin's key: %w", err)
	}
	return key, username, nil
}

// createRecoveryAdmin creates an admin with every permission, without an email address or a password.
func createRecoveryAdmin(ctx context.Context, tx *pg.Tx) (id int64, username string, err error) {
	if username, err = freeUsername(ctx, tx, recoveryName); err != nil {
		return 0, "", err
	}
	err = tx.QueryRow(ctx, "INSERT INTO admin (username, permissions) VALUES ($1, $2) RETURNING id", username, principal.All.Names()).Scan(&id)
	if err != nil {
		return 0, "", fmt.Errorf("create the admin %s: %w", username, err)
	}
	admin, err := View.Get(ctx, tx, id)
	if err != nil {
		return 0, "", fmt.Errorf("read admin %d: %w", id, err)
	}
	tx.Record(pg.Record{Kind: "admin", Action: pg.Created, After: admin, Targets: []pg.Target{Target(&admin)}})
	return id, username, nil
}

// Create creates an admin without a password, and returns its id.
func Create(ctx context.Context, tx *pg.Tx, email string, permissions []string) (id int64, err error) {
	username, err := freeUsername(ctx, tx, email)
	if err != nil {
		return 0, err
	}
	if err := tx.QueryRow(
		ctx, "INSERT INTO admin (username, email, permissions) VALUES ($1, $2, $3) RETURNING id", username, email, permissions,
	).
		Scan(&id); err != nil {
		return 0, fmt.Errorf("create an admin: %w", err)
	}
	admin, err := View.Get(ctx, tx, id)
	if err != nil {
		return 0, fmt.Errorf("read admin %d: %w", id, err)
	}
	tx.Record(pg.Record{Kind: "admin", Action: pg.Created, After: admin, Targets: []pg.Target{Target(&admin)}})
	return id, nil
}
