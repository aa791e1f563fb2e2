package startup

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/ironplane/ironplane/deploy/internal/backup"
	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/secret"
)

// writeBackup writes everything that the installation keeps to a file.
func writeBackup(ctx context.Context, c Config, file string, screen io.Writer) error {
	if err := checkOwner(c.Datastores.Data); err != nil {
		return err
	}
	masterKey, err := readMasterKey(c)
	if err != nil {
		return err
	}
	return asAdministrator(ctx, c, func(ctx context.Context, admin secret.String) error {
		return backup.Write(ctx, c.installation(admin, masterKey), file, screen)
	})
}

// restoreBackup replaces the installation's data by that of a backup.
func restoreBackup(ctx context.Context, c Config, file string, screen io.Writer) error {
	archive, err := backup.Open(ctx, file)
	if err != nil {
		return err
	}
	defer archive.Close()
	if err := checkOwner(c.Datastores.Data); err != nil {
		return err
	}
	folder := c.Datastores.Data
	if c.Datastores.DatabaseURL.IsZero() {
		folder = product.PostgresFolder(folder) // for a new machine: asAdministrator starts only a PostgreSQL that has a folder
	}
	if err := os.MkdirAll(folder, 0o711); err != nil {
		return fmt.Errorf("create the data folder: %w", err)
	}
	return asAdministrator(ctx, c, func(ctx context.Context, admin secret.String) error {
		claim, err := product.NewClaim(ctx, admin)
		if err != nil {
			return err
		}
		defer claim.Close(context.WithoutCancel(ctx))
		return archive.Restore(ctx, backup.Target{
			Installation:   c.installation(admin, c.Datastores.MasterKey),
			Marker:         filepath.Join(c.Datastores.Data, "restoring"),
			WriteMasterKey: func(key secret.String) error { return product.ReplaceMasterKey(c.Datastores.Data, key) },
			Bootstrap: func(ctx context.Context) (map[string]secret.String, error) {
				return product.Bootstrap(ctx, admin, c.Datastores.Data)
			},
			Reconcile: c.Restored,
			Settings:  c.Settings,
		}, file+".settings", screen)
	})
}

func (c Config) installation(admin, masterKey secret.String) backup.Installation {
	return backup.Installation{
		Config:    c.Backup,
		Admin:     admin,
		MasterKey: masterKey,
		KeyIsSet:  !c.Datastores.MasterKey.IsZero(),
		Store:     c.store(),
	}
}

// checkOwner returns an error if this process runs as root, and the data belongs to another user, who could not read new files.
func checkOwner(data string) error {
	info, err := os.Stat(data)
	if err != nil || os.Geteuid() != 0 {
		return nil // a missing folder is created
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && owner.Uid != 0 {
		return fmt.Errorf("%s belongs to user %d: run this command as that user, such as with sudo -u ironplane", data, owner.Uid)
	}
	return nil
}
