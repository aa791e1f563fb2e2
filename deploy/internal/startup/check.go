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

// checks are of what run needs. Where Postgres and Redis are the installation's own, they are not started for that.
func (c *Config) checks() []health.Check {
	checks := []health.Check{
		{Name: "IRONPLANE_DATA: " + c.Backings.Data + " can be written", Ask: func(context.Context) error { return writable(c.Backings.Data) }},
		{Name: "IRONPLANE_MASTER_KEY: it is a key", Ask: func(context.Context) error {
			key, err := keptMasterKey(*c)
			if errors.Is(err, fs.ErrNotExist) { // it is made
				return nil
			}
			if err == nil {
				_, err = product.ProcessKeys(key)
			}
			return err
		}},
	}
	if url := c.Backings.DatabaseURL; url.IsZero() {
		checks = append(checks, health.Check{Name: "PostgreSQL: there is one to start", Ask: func(ctx context.Context) error {
			return devservers.CheckPostgres(ctx, product.PostgresFolder(c.Backings.Data))
		}})
	} else {
		checks = append(
			checks,
			health.Check{Name: "DATABASE_URL: all is there that services need, or may be made", Ask: func(ctx context.Context) error {
				return product.CheckDatabase(ctx, url, c.Backings.Data)
			}},
			health.Check{
				Name: "DATABASE_URL: what is in it is sealed with this master key, and was taken up if it was restored",
				Ask: func(ctx context.Context) error {
					key, err := keptMasterKey(*c)
					if errors.Is(err, fs.ErrNotExist) {
						return nil
					}
					if err != nil {
						return err
					}
					return product.CheckKept(ctx, url, key)
				},
			},
			health.Check{Name: "DATABASE_URL: there are connections enough", Optional: true, Ask: func(ctx context.Context) error {
				return product.CheckConnections(ctx, url)
			}},
		)
	}
	if !c.Backings.RedisURL.IsZero() {
		checks = append(checks, process.CheckRedis(c.Backings.RedisURL))
	}
	if c.AdminKeyFile != "" {
		checks = append(checks, health.Check{Name: "IRONPLANE_ADMIN_KEY_FILE: its folder can be written", Ask: func(context.Context) error {
			return writable(filepath.Dir(c.AdminKeyFile))
		}})
	}
	checks = append(checks, process.CheckListen("IRONPLANE_LISTEN", c.Listen))
	return slices.Concat(checks, c.Gateway.Checks(), c.OperationsConfig.Checks())
}

// writable fails where no file can be made in a folder, or in the next one above that is there.
func writable(folder string) error {
	for {
		file, err := os.CreateTemp(folder, ".check-")
		if err == nil {
			return errors.Join(file.Close(), os.Remove(file.Name()))
		}
		above := filepath.Dir(folder)
		if !errors.Is(err, fs.ErrNotExist) || above == folder {
			return fmt.Errorf("write into %s: %w", folder, errors.Unwrap(err))
		}
		folder = above
	}
}
