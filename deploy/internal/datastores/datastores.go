// Package datastores starts the Postgres and the Redis of an installation in its data folder, unless variables name others to
// use.
package datastores

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

// Config says where the data and the servers are. Its fields are variables of the environment.
type Config struct {
	Data        string        `env:"IRONPLANE_DATA" default:"./data" doc:"the folder of the data, which has to survive restarts"`
	DatabaseURL secret.String `env:"DATABASE_URL" doc:"a PostgreSQL to use instead of its own, with a role that may create roles: postgres://…"`
	RedisURL    secret.String `env:"REDIS_URL" doc:"a Redis to use instead of its own: redis://…"`
	MasterKey   secret.String `env:"IRONPLANE_MASTER_KEY" doc:"the key that seals secrets, instead of the one in the data folder: at least 32 random bytes in base64; after a change of keys, the new key, a comma and the old keys"`
}

// StartTimeout is how long Postgres may take to start. It includes the recovery after a crash.
const StartTimeout = 2 * time.Minute

// Servers are the Postgres and the Redis that the process started, and its claim on the database. The process has to Stop them.
type Servers struct {
	postgres *devservers.Postgres
	redis    *devservers.Redis
	claim    *product.Claim
}

// Databases claims the database for this process, and returns the URL of each service's schema by the service's name.
func (s *Servers) Databases(ctx context.Context, c Config, screen io.Writer) (map[string]secret.String, error) {
	ctx, cancel := context.WithTimeout(ctx, StartTimeout)
	defer cancel()
	if err := os.MkdirAll(c.Data, 0o711); err != nil {
		return nil, fmt.Errorf("create the data folder: %w", err)
	}
	admin := c.DatabaseURL
	if admin.IsZero() {
		var err error
		if admin, err = s.startPostgres(ctx, c); err != nil {
			return nil, err
		}
	}
	claim, err := product.NewClaim(ctx, admin)
	if err != nil {
		return nil, err
	}
	s.claim = claim
	urls, err := product.Bootstrap(ctx, admin, c.Data)
	if err != nil {
		return nil, err
	}
	shortage, err := claim.ConnectionShortage(ctx)
	if shortage != "" {
		fmt.Fprintln(screen, shortage)
	}
	return urls, err
}

// MasterKey returns the configured master key, or the one in the data folder. Databases has to come before.
func (s *Servers) MasterKey(ctx context.Context, c Config) (secret.String, error) {
	if !c.MasterKey.IsZero() {
		return c.MasterKey, nil
	}
	var key secret.String
	err := s.claim.WithConnection(ctx, func(conn *pgx.Conn) (err error) {
		key, err = product.EnsureMasterKey(ctx, c.Data, conn)
		return err
	})
	return key, err
}

// Administrator returns the database's URL, as its administrator. It starts Postgres unless the installation already runs in
// another process.
func (s *Servers) Administrator(ctx context.Context, c Config) (secret.String, error) {
	if !c.DatabaseURL.IsZero() {
		return c.DatabaseURL, nil
	}
	if _, err := os.Stat(product.PostgresFolder(c.Data)); err != nil {
		return secret.String{}, fmt.Errorf("%s holds no installation; set IRONPLANE_DATA to the folder of the data", c.Data)
	}
	admin, err := s.startPostgres(ctx, c)
	if !errors.Is(err, devservers.ErrInUse) {
		return admin, err
	}
	url, err := os.ReadFile(urlFile(c))
	if err != nil {
		return secret.String{}, fmt.Errorf("read the address of the running Postgres: %w", err)
	}
	return secret.New(string(url)), nil
}

func (s *Servers) startPostgres(ctx context.Context, c Config) (admin secret.String, err error) {
	if s.postgres, admin, err = product.StartPostgres(ctx, c.Data); err != nil {
		return secret.String{}, err
	}
	if err := os.WriteFile(urlFile(c), []byte(admin.Reveal()), 0o600); err != nil {
		return secret.String{}, fmt.Errorf("write the database's address: %w", err)
	}
	return admin, nil
}

// urlFile returns the file that holds, for Administrator, the URL of the Postgres that runs in the data folder.
func urlFile(c Config) string { return filepath.Join(c.Data, "database-url") }

// Redis returns the URL of the configured Redis, or starts one.
func (s *Servers) Redis(ctx context.Context, c Config, screen io.Writer) (secret.String, error) {
	if !c.RedisURL.IsZero() {
		return c.RedisURL, nil
	}
	var err error
	if s.redis, err = devservers.StartRedis(ctx, devservers.RedisOptions{Dir: filepath.Join(c.Data, "redis")}); err != nil {
		return secret.String{}, err
	}
	if s.redis.IsEmbedded() {
		fmt.Fprintln(
			screen,
			"redis-server is not on PATH: this process emulates it, which is enough to try Ironplane. Install redis-server for production.",
		)
	}
	return secret.New(s.redis.URL()), nil
}

// Wait returns an error when a server ends by itself, or when another process claims the database, and nil when ctx ends.
func (s *Servers) Wait(ctx context.Context) error {
	holding, stop := context.WithCancel(ctx)
	lost := make(chan error, 1)
	var watching sync.WaitGroup
	if s.claim != nil {
		watching.Go(func() { lost <- s.claim.Hold(holding) })
	}
	defer watching.Wait()
	defer stop()
	var postgres, redis <-chan struct{}
	if s.postgres != nil {
		postgres = s.postgres.Done()
	}
	if s.redis != nil {
		redis = s.redis.Done()
	}
	select {
	case <-postgres:
		return fmt.Errorf("postgres ended by itself: %w", s.postgres.Err())
	case <-redis:
		return fmt.Errorf("redis ended by itself: %w", s.redis.Err())
	case err := <-lost:
		return err
	case <-ctx.Done():
		return nil
	}
}

// Stop stops the servers in the reverse order of their start, and releases the claim.
func (s *Servers) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	var failed error
	if s.redis != nil {
		failed = errors.Join(failed, s.redis.Stop(ctx))
	}
	if s.claim != nil {
		failed = errors.Join(failed, s.claim.Close(ctx))
	}
	if s.postgres != nil {
		failed = errors.Join(failed, s.postgres.Stop(ctx))
	}
	return failed
}
