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

// purposes are what each process needs derived keys for.
func purposes() map[string][]seal.Purpose {
	all := map[string][]seal.Purpose{principal.Gateway: {keycache.Purpose, seal.Sealing(principal.Gateway)}}
	for _, d := range Services {
		all[d.Name] = d.Purposes()
	}
	return all
}

// ProcessKeys are what each process is given of the master key, by its name.
func ProcessKeys(masterKey secret.String) (map[string]*seal.ProcessKey, error) {
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

// MasterKey is the master key in a data folder. It is made where no service has a table yet that is sealed with it.
func MasterKey(ctx context.Context, data string, admin *pgx.Conn) (secret.String, error) {
	key, err := KeptMasterKey(data)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	place := masterKeyFile(data)
	for _, d := range Services {
		if !d.Seals {
			continue
		}
		var used bool
		if err := admin.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", d.Name+".migration").Scan(&used); err != nil {
			return secret.String{}, fmt.Errorf("look whether %s is in use: %w", d.Name, err)
		}
		if used {
			return secret.String{}, fmt.Errorf(
				"%s is not there, and the database holds what is sealed with it: put it back, or set IRONPLANE_MASTER_KEY to what was in it",
				place,
			)
		}
	}
	if err := os.MkdirAll(data, 0o711); err != nil {
		return secret.String{}, fmt.Errorf("make the data folder: %w", err)
	}
	if err := keep(place, seal.NewMasterKey()); err != nil && !errors.Is(err, fs.ErrExist) {
		return secret.String{}, fmt.Errorf("keep the master key: %w", err)
	}
	return KeptMasterKey(data)
}

func masterKeyFile(data string) string { return filepath.Join(data, "master-key") }

// KeptMasterKey is the master key that is in a data folder already.
func KeptMasterKey(data string) (secret.String, error) {
	text, err := os.ReadFile(masterKeyFile(data))
	return secret.New(strings.TrimSpace(string(text))), err
}

// keep writes a file that is not there yet, all of it or nothing, for its owner alone.
func keep(place string, value secret.String) error {
	folder, err := os.Open(filepath.Dir(place))
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
	if err := os.Link(file.Name(), place); err != nil {
		return err
	}
	return folder.Sync()
}
