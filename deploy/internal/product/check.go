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

// CheckDatabase fails where an installation could not be made, or taken up, in a database, and says what is missing. It
// changes nothing.
func CheckDatabase(ctx context.Context, admin secret.String, data string) error {
	passwords := map[string]secret.String{}
	for _, name := range Names() {
		text, _ := os.ReadFile(passwordFile(data, name)) // one that is not there is made
		passwords[name] = secret.New(strings.TrimSpace(string(text)))
	}
	return provision.Check(ctx, admin.Reveal(), rolePrefix(admin), passwords)
}

// CheckConnections says where the database leaves an installation in one process fewer connections than it may open.
func CheckConnections(ctx context.Context, admin secret.String) error {
	conn, err := pool.Connect(ctx, admin.Reveal())
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	short, err := budget(admin).Shortage(ctx, conn)
	if err == nil && short != "" {
		err = errors.New(short)
	}
	return err
}

// CheckKept fails where what is in a database was sealed with another master key, or was restored and not taken up, and says
// that of each service. It changes nothing. A schema that is not there yet is none.
func CheckKept(ctx context.Context, admin, masterKey secret.String) (wrong error) {
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
			wrong = errors.Join(wrong, fmt.Errorf("%s: %w", d.Name, err))
		}
	}
	return wrong
}
