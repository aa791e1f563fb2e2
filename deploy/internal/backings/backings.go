// Package backings starts the Postgres and the Redis of an installation in a data folder, as far as it is not given
// them.
package backings

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/devservers"
	"github.com/ironplane/ironplane/pkg/secret"
)

// Config is where they are, or are to be.
type Config struct {
	Data        string        `env:"IRONPLANE_DATA" default:"./data" doc:"the folder of the data; it survives a restart"`
	DatabaseURL secret.String `env:"DATABASE_URL" doc:"a Postgres to use, as a role that may create roles, instead of an own one: postgres://…"`
	RedisURL    secret.String `env:"REDIS_URL" doc:"a Redis to use instead of an own one: redis://…"`
	MasterKey   secret.String `env:"IRONPLANE_MASTER_KEY" doc:"what secrets are sealed with, instead of the key in the data folder: 32 random bytes or more in base64; after a change of keys the old ones behind it, with commas"`
}

// StartTime is how long a Postgres may take to start, after a crash, too.
const StartTime = 2 * time.Minute

// Backings are what the process started. They belong to it: it has to Stop them.
type Backings struct {
	postgres *devservers.Postgres
	redis    *devservers.Redis
	claim    *product.Claim // on the database
}

// Databases answers, for each service, the URL of its schema, and holds the database for this process.
func (b *Backings) Databases(ctx context.Context, c Config, screen io.Writer) (map[string]secret.String, error) {
	ctx, cancel := context.WithTimeout(ctx, StartTime)
	defer cancel()
	if err := os.MkdirAll(c.Data, 0o711); err != nil {
		return nil, fmt.Errorf("make the data folder: %w", err)
	}
	admin := c.DatabaseURL
	if admin.IsZero() {
		var err error
		if admin, err = b.startPostgres(ctx, c); err != nil {
			return nil, err
		}
	}
	claim, err := product.NewClaim(ctx, admin)
	if err != nil {
		return nil, err
	}
	b.claim = claim
	urls, err := product.Bootstrap(ctx, admin, c.Data)
	if err != nil {
		return nil, err
	}
	short, err := claim.Short(ctx)
	if short != "" {
		fmt.Fprintln(screen, short)
	}
	return urls, err
}

// MasterKey answers the given master key, or the one in the data folder. The database is held already.
func (b *Backings) MasterKey(ctx context.Context, c Config) (secret.String, error) {
	if !c.MasterKey.IsZero() {
		return c.MasterKey, nil
	}
	var key secret.String
	err := b.claim.Ask(ctx, func(conn *pgx.Conn) (err error) {
		key, err = product.MasterKey(ctx, c.Data, conn)
		return err
	})
	return key, err
}

// Administrator answers the URL of the database in an installation that may be running: in another process, too.
func (b *Backings) Administrator(ctx context.Context, c Config) (secret.String, error) {
	if !c.DatabaseURL.IsZero() {
		return c.DatabaseURL, nil
	}
	if _, err := os.Stat(product.PostgresFolder(c.Data)); err != nil {
		return secret.String{}, fmt.Errorf("there is no installation in %s; IRONPLANE_DATA names its folder", c.Data)
	}
	admin, err := b.startPostgres(ctx, c)
	if !errors.Is(err, devservers.ErrInUse) {
		return admin, err
	}
	url, err := os.ReadFile(urlFile(c))
	if err != nil {
		return secret.String{}, fmt.Errorf("find the Postgres that runs: %w", err)
	}
	return secret.New(string(url)), nil
}

func (b *Backings) startPostgres(ctx context.Context, c Config) (admin secret.String, err error) {
	if b.postgres, admin, err = product.StartPostgres(ctx, c.Data); err != nil {
		return secret.String{}, err
	}
	if err := os.WriteFile(urlFile(c), []byte(admin.Reveal()), 0o600); err != nil {
		return secret.String{}, fmt.Errorf("note the database's address: %w", err)
	}
	return admin, nil
}

// urlFile holds, for Administrator, the address of the Postgres that runs in the data folder.
func urlFile(c Config) string { return filepath.Join(c.Data, "database-url") }

// Redis answers the URL of the given Redis, or of an own one.
func (b *Backings) Redis(ctx context.Context, c Config, screen io.Writer) (secret.String, error) {
	if !c.RedisURL.IsZero() {
		return c.RedisURL, nil
	}
	var err error
	if b.redis, err = devservers.StartRedis(ctx, devservers.RedisOptions{Dir: filepath.Join(c.Data, "redis")}); err != nil {
		return secret.String{}, err
	}
	if b.redis.IsEmbedded() {
		fmt.Fprintln(
			screen,
			"There is no redis-server on PATH: a stand-in inside this process serves instead, which is fine for trying Ironplane.",
		)
	}
	return secret.New(b.redis.URL()), nil
}

// Ended waits until one of the children ends by itself, or another process has the database that this one holds, and says
// which, or until ctx ends.
func (b *Backings) Ended(ctx context.Context) error {
	holding, stop := context.WithCancel(ctx)
	lost := make(chan error, 1)
	var watching sync.WaitGroup
	if b.claim != nil {
		watching.Go(func() { lost <- b.claim.Hold(holding) })
	}
	defer watching.Wait()
	defer stop()
	var postgres, redis <-chan struct{}
	if b.postgres != nil {
		postgres = b.postgres.Done()
	}
	if b.redis != nil {
		redis = b.redis.Done()
	}
	select {
	case <-postgres:
		return fmt.Errorf("the own Postgres ended: %w", b.postgres.Err())
	case <-redis:
		return fmt.Errorf("the own Redis ended: %w", b.redis.Err())
	case err := <-lost:
		return err
	case <-ctx.Done():
		return nil
	}
}

// Stop ends what was started, the last first.
func (b *Backings) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	var failed error
	if b.redis != nil {
		failed = errors.Join(failed, b.redis.Stop(ctx))
	}
	if b.claim != nil {
		failed = errors.Join(failed, b.claim.Close(ctx))
	}
	if b.postgres != nil {
		failed = errors.Join(failed, b.postgres.Stop(ctx))
	}
	return failed
}
