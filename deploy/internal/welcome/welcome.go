// Package welcome says to who starts an installation where it is and how to get in.
package welcome

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/identity"
)

// Print makes the first admin in identity's database, if there is none yet, and says where to go from here. Where
// keyFile is not empty the admin's key goes there, and not to the screen.
func Print(ctx context.Context, screen io.Writer, url string, db *pg.DB, keyFile string) error {
	fmt.Fprintf(screen, "Ironplane is ready at %s (the API's documentation is at %s/-/docs).\n", url, url)
	any, err := identity.AnyAdmin(ctx, db)
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
	key, made, err := identity.FirstAdmin(ctx, db)
	if err != nil || !made {
		return err
	}
	if file == nil {
		fmt.Fprintf(screen, "\nThe first admin's key, which is shown this once:\n\n  %s\n\nTry it:\n\n  curl -H 'Authorization: Bearer %s' %s/auth/key/current\n\n",
			key.Reveal(), key.Reveal(), url)
		return nil
	}
	if err := writeKey(file, key, keyFile); err != nil {
		return fmt.Errorf("write the admin's key: %w", err)
	}
	fmt.Fprintf(screen, "The first admin's key is in %s.\n", keyFile)
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
