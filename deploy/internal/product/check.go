package product

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/postgres/provision"
	"github.com/ironplane/ironplane/pkg/runtime/host"
	"github.com/ironplane/ironplane/pkg/secret"
)

// CheckDatabase returns an error that says what an installation still lacks in a database: a permission of its administrator,
// an extension, or the right password of a role. It changes nothing.
func CheckDatabase(ctx context.Context, admin secret.String, data string) error {
	roles := map[string]provision.Role{}
	for _, name := range Names() {
		text, _ := os.ReadFile(passwordFile(data, name)) // Bootstrap creates a missing one
		roles[name] = NewRole(name, secret.New(strings.TrimSpace(string(text))), 0)
	}
	return provision.Check(ctx, admin.Reveal(), rolePrefix(admin), roles)
}

// CheckConnections returns an error if the database allows fewer connections than an installation in one process may open.
func CheckConnections(ctx context.Context, admin secret.String) error {
	conn, err := pool.Connect(ctx, admin.Reveal())
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	shortage, err := budget(admin).Shortage(ctx, conn)
	if err == nil && shortage != "" {
		err = errors.New(shortage)
	}
	return err
}

// CheckSchemas returns an error for each service whose data is sealed with another master key, or was restored and not
// reconciled. It skips schemas that do not exist yet, and changes nothing.
func CheckSchemas(ctx context.Context, admin, masterKey secret.String) (failed error) {
	for _, d := range Services {
		box, err := d.NewBox(masterKey)
		if err != nil {
			return err
		}
		db, err := OpenSchema(ctx, admin, d.Name)
		if err != nil {
			return err
		}
		err = host.CheckBeforeMigration(ctx, d, db.DB, box)
		db.Close()
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", d.Name, err))
		}
	}
	return failed
}
