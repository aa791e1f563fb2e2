package product

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
)

// purposes returns what each process needs derived keys for, by the process's name.
func purposes() map[string][]seal.Purpose {
	all := map[string][]seal.Purpose{principal.Gateway: {keycache.Purpose, seal.Sealing(principal.Gateway)}}
	for _, d := range Services {
		all[d.Name] = d.Purposes()
	}
	return all
}

// DeriveProcessKeys derives each process's key from the master key, and returns them by the process's name.
func DeriveProcessKeys(masterKey secret.String) (map[string]*seal.ProcessKey, error) {
	keys := map[string]*seal.ProcessKey{}
	for process, purposes := range purposes() {
		key, err := seal.Derive(masterKey, process, purposes...)
		if err != nil {
			return nil, fmt.Errorf("derive the key of %s: %w", process, err)
		}
		keys[process] = key
	}
	return keys, nil
}

// EnsureMasterKey returns the master key in a data folder. If there is none, it creates one, unless the database already has
// data that another key may have sealed.
func EnsureMasterKey(ctx context.Context, data string, admin *pgx.Conn) (secret.String, error) {
	key, err := ReadMasterKey(data)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	path := masterKeyFile(data)
	for _, d := range Services {
		if !d.Seals {
			continue
		}
		var used bool
		if err := admin.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", d.Name+".migration").Scan(&used); err != nil {
			return secret.String{}, fmt.Errorf("check whether %s has a schema: %w", d.Name, err)
		}
		if used {
			return secret.String{}, fmt.Errorf(
				"%s is missing, and the database holds data that is sealed with its key; put the file back, or set IRONPLANE_MASTER_KEY to its content",
				path,
			)
		}
	}
	if err := os.MkdirAll(data, 0o711); err != nil {
		return secret.String{}, fmt.Errorf("create the data folder: %w", err)
	}
	if err := writeSecret(path, seal.NewMasterKey()); err != nil && !errors.Is(err, fs.ErrExist) {
		return secret.String{}, fmt.Errorf("store the master key: %w", err)
	}
	return ReadMasterKey(data)
}

func masterKeyFile(data string) string { return filepath.Join(data, "master-key") }

// ReadMasterKey reads the master key from a data folder. The error is fs.ErrNotExist if there is none.
func ReadMasterKey(data string) (secret.String, error) {
	text, err := os.ReadFile(masterKeyFile(data))
	return secret.New(strings.TrimSpace(string(text))), err
}

// ReplaceMasterKey writes the master key of a data folder. It keeps another one in the file master-key.before.
func ReplaceMasterKey(data string, key secret.String) error {
	path := masterKeyFile(data)
	switch existing, err := ReadMasterKey(data); {
	case err == nil && existing.Equal(key):
		return nil
	case err == nil:
		if err := os.Rename(path, path+".before"); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return writeSecret(path, key)
}

// writeSecret creates a file that only its owner can read. The file appears with its whole content or not at all. The error is
// fs.ErrExist if the file exists.
func writeSecret(path string, value secret.String) error {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer folder.Close()
	file, err := os.CreateTemp(folder.Name(), ".new-") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if _, err := file.WriteString(value.Reveal() + "\n"); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if err := os.Link(file.Name(), path); err != nil {
		return err
	}
	return folder.Sync()
}
