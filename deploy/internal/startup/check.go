package startup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/devservers"
	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/pkg/runtime/process"
)

// checks returns the checks of what the command run needs. They start neither Postgres nor Redis.
func (c *Config) checks() []health.Check {
	checks := []health.Check{
		{
			Name: "IRONPLANE_DATA: " + c.Datastores.Data + " can be written",
			Ask:  func(context.Context) error { return checkWritable(c.Datastores.Data) },
		},
		{Name: "IRONPLANE_MASTER_KEY: is a valid key", Ask: func(context.Context) error {
			key, err := readMasterKey(*c)
			if errors.Is(err, fs.ErrNotExist) { // the first start creates it
				return nil
			}
			if err == nil {
				_, err = product.DeriveProcessKeys(key)
			}
			return err
		}},
	}
	if url := c.Datastores.DatabaseURL; url.IsZero() {
		checks = append(checks, health.Check{Name: "PostgreSQL: its programs are installed", Ask: func(ctx context.Context) error {
			return devservers.CheckPostgres(ctx, product.PostgresFolder(c.Datastores.Data))
		}})
	} else {
		checks = append(
			checks,
			health.Check{Name: "DATABASE_URL: roles and schemas exist, or can be created", Ask: func(ctx context.Context) error {
				return product.CheckDatabase(ctx, url, c.Datastores.Data)
			}},
			health.Check{
				Name: "DATABASE_URL: the data is sealed with this master key, and reconciled if it was restored",
				Ask: func(ctx context.Context) error {
					key, err := readMasterKey(*c)
					if errors.Is(err, fs.ErrNotExist) {
						return nil
					}
					if err != nil {
						return err
					}
					return product.CheckSchemas(ctx, url, key)
				},
			},
			health.Check{Name: "DATABASE_URL: there are enough connections", Optional: true, Ask: func(ctx context.Context) error {
				return product.CheckConnections(ctx, url)
			}},
		)
	}
	if !c.Datastores.RedisURL.IsZero() {
		checks = append(checks, process.CheckRedis(c.Datastores.RedisURL))
	}
	if c.AdminKeyFile != "" {
		checks = append(checks, health.Check{Name: "IRONPLANE_ADMIN_KEY_FILE: its folder can be written", Ask: func(context.Context) error {
			return checkWritable(filepath.Dir(c.AdminKeyFile))
		}})
	}
	checks = append(checks, process.CheckListen("IRONPLANE_LISTEN", c.Listen))
	for _, d := range product.Services {
		if d.Checks != nil {
			checks = append(checks, d.Checks(c.Settings)...)
		}
	}
	return slices.Concat(checks, c.Gateway.Checks(), c.OperationsConfig.Checks())
}

// checkWritable returns an error if no file can be created in a folder or, if it does not exist, in its nearest existing parent.
func checkWritable(folder string) error {
	for {
		file, err := os.CreateTemp(folder, ".check-")
		if err == nil {
			return errors.Join(file.Close(), os.Remove(file.Name()))
		}
		parent := filepath.Dir(folder)
		if !errors.Is(err, fs.ErrNotExist) || parent == folder {
			return fmt.Errorf("write into %s: %w", folder, errors.Unwrap(err))
		}
		folder = parent
	}
}
