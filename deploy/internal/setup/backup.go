package setup

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/ironplane/ironplane/deploy/internal/backup"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
)

// writeBackup writes everything that the installation keeps to a file. Passwords and certificates are not in it: the commands secrets
// and certificates create new ones.
func (c config) writeBackup(ctx context.Context, file string, screen io.Writer) error {
	i, err := c.installation()
	if err != nil {
		return err
	}
	if i.MasterKey, err = c.readSecret("master-key"); err != nil {
		return err
	}
	return backup.Write(ctx, i, file, screen)
}

// restoreBackup replaces the installation's data by that of a backup, and derives the keys of processes from the backup's master key.
func (c config) restoreBackup(ctx context.Context, file string, screen io.Writer) error {
	archive, err := backup.Open(ctx, file)
	if err != nil {
		return err
	}
	defer archive.Close()
	i, err := c.installation()
	if err != nil {
		return err
	}
	return archive.Restore(ctx, backup.Target{
		Installation:   i,
		Marker:         filepath.Join(c.Secrets, setupFolder, "restoring"),
		WriteMasterKey: c.replaceMasterKey,
		Bootstrap:      c.bootstrapPostgres,
		Reconcile:      c.Restored,
		Settings:       service.Settings{},
	}, file+".settings", screen)
}

func (c config) installation() (backup.Installation, error) {
	password, err := c.readSecret("postgres-password")
	if err != nil {
		return backup.Installation{}, err
	}
	return backup.Installation{Config: c.Backup, Admin: secret.New(c.adminURL(password)), Store: c.Store}, nil
}

// replaceMasterKey writes the master key, and the keys of processes that are derived from it. It keeps another master key in the file
// master-key.before.
func (c config) replaceMasterKey(key secret.String) error {
	before, err := c.readSecret("master-key")
	if err != nil {
		return err
	}
	path := filepath.Join(c.Secrets, setupFolder, "master-key")
	if !before.Equal(key) {
		if err := replaceFile(path+".before", before); err != nil {
			return fmt.Errorf("keep the master key: %w", err)
		}
		if err := replaceFile(path, key); err != nil {
			return err
		}
	}
	return createSecrets(c) // also if an earlier try was cut off here
}
