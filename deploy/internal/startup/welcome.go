package startup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/admin"
)

// Welcome prints the installation's address, and creates the first admin if there is none. It writes the admin's key to the
// configured file or, without one, to the screen.
func (i *Installation) Welcome(ctx context.Context, address string) error {
	db, err := pool.Open(ctx, i.Databases[identity.Name].Reveal(), 1, pool.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	url, keyFile := "http://"+address, i.AdminKeyFile
	if strings.HasPrefix(i.APIURL, "http://localhost:") {
		url = i.APIURL
	}
	fmt.Fprintf(i.screen, "Ironplane is ready at %s (the API's documentation is at %s/-/docs).\n", url, url)
	exists, err := admin.Exists(ctx, db)
	if err != nil || exists {
		return err
	}
	var file *os.File
	if keyFile != "" {
		if file, err = os.CreateTemp(filepath.Dir(keyFile), ".admin-key-"); err != nil { // before the key exists, which cannot be shown again
			return fmt.Errorf("write the admin's key: %w", err)
		}
		defer os.Remove(file.Name())
		defer file.Close()
	}
	key, created, err := admin.CreateFirst(ctx, db.DB)
	if err != nil || !created {
		return err
	}
	if file == nil {
		fmt.Fprintf(
			i.screen,
			"\nThe first admin's key. It is shown only once:\n\n  %s\n\nTry it:\n\n  curl -H 'Authorization: Bearer %s' %s/auth/key/current\n\n",
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

// writeKey writes the key to the file, which only its owner can read, and moves the file to path.
func writeKey(file *os.File, key secret.String, path string) error {
	if _, err := file.WriteString(key.Reveal() + "\n"); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
