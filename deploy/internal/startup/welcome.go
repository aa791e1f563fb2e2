package startup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/admin"
)

// Welcome says at which address the installation is ready, and makes the first admin where there is none yet. The
// admin's key goes to the file that the settings name, or else to the screen.
func (i *Installation) Welcome(ctx context.Context, address string) error {
	db, err := pool.Open(ctx, i.Databases[identity.Name].Reveal(), 1, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	url, keyFile := "http://"+address, i.AdminKeyFile
	fmt.Fprintf(i.screen, "Ironplane is ready at %s (the API's documentation is at %s/-/docs).\n", url, url)
	any, err := admin.Exists(ctx, db)
	if err != nil || any {
		return err
	}
	var file *os.File
	if keyFile != "" {
		if file, err = os.CreateTemp(filepath.Dir(keyFile), ".admin-key-"); err != nil { // before the key is made: it is shown once
			return fmt.Errorf("write the admin's key: %w", err)
		}
		defer os.Remove(file.Name())
		defer file.Close()
	}
	key, made, err := admin.CreateFirst(ctx, db.DB)
	if err != nil || !made {
		return err
	}
	if file == nil {
		fmt.Fprintf(
			i.screen,
			"\nThe first admin's key, which is shown this once:\n\n  %s\n\nTry it:\n\n  curl -H 'Authorization: Bearer %s' %s/auth/key/current\n\n",
			key.Reveal(),
			key.Reveal(),
			url,
		)
		return nil
	}
	if err := writeKey(file, key, keyFile); err != nil {
		return fmt.Errorf("write the admin's key: %w", err)
	}
	fmt.Fprintf(i.screen, "The first admin's key is in %s.\n", keyFile)
	return nil
}

// writeKey fills the file, which only its owner may read, and puts it in its place.
func writeKey(file *os.File, key secret.String, place string) error {
	if _, err := file.WriteString(key.Reveal() + "\n"); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	return os.Rename(file.Name(), place)
}
