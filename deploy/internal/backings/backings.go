package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/backing"
	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/secret"
)

// startTime is how long a Postgres may take to start, after a crash, too.
const startTime = 2 * time.Minute

// backings are the Postgres and the Redis that the process started, as far as it was not given them.
type backings struct {
	postgres *backing.Postgres
	server   *backing.Redis
	client   *redis.Client
	alone    *pgx.Conn // holds the database for this process
}

// database answers, for each service, the URL of its schema.
func (b *backings) database(ctx context.Context, c config) (map[string]secret.String, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	admin := c.DatabaseURL
	if admin.IsZero() {
		var err error
		if admin, err = b.startPostgres(ctx, c); err != nil {
			return nil, err
		}
	}
	var err error
	if b.alone, err = product.Claim(ctx, admin); err != nil {
		return nil, err
	}
	return product.Bootstrap(ctx, admin)
}

func (b *backings) startPostgres(ctx context.Context, c config) (admin secret.String, err error) {
	if b.postgres, admin, err = product.StartPostgres(ctx, c.Data); err != nil {
		return secret.String{}, err
	}
	if err := os.WriteFile(urlFile(c), []byte(admin.Reveal()), 0o600); err != nil {
		return secret.String{}, fmt.Errorf("note the database's address: %w", err)
	}
	return admin, nil
}

// redis answers a client of the given Redis, or of an own one.
func (b *backings) redis(ctx context.Context, c config, screen io.Writer) (*redis.Client, error) {
	url := c.RedisURL
	if url.IsZero() {
		var err error
		if b.server, err = backing.StartRedis(ctx, backing.RedisOptions{Dir: filepath.Join(c.Data, "redis")}); err != nil {
			return nil, err
		}
		if b.server.Standin() {
			fmt.Fprintln(screen, "There is no redis-server on PATH: a stand-in inside this process serves instead, which is fine for trying Ironplane.")
		}
		url = secret.New(b.server.URL())
	}
	client, err := cache.Open(url)
	if err != nil {
		return nil, fmt.Errorf("REDIS_URL: %w", err)
	}
	b.client = client
	if err := b.client.Ping(ctx).Err(); err != nil {
		return nil, fmt.Errorf("connect to Redis: %w", err)
	}
	return b.client, nil
}

// ended waits until one of the children ends by itself and says which, or until ctx ends.
func (b *backings) ended(ctx context.Context) error {
	var postgres, server <-chan struct{}
	if b.postgres != nil {
		postgres = b.postgres.Done()
	}
	if b.server != nil {
		server = b.server.Done()
	}
	select {
	case <-postgres:
		return fmt.Errorf("the own Postgres ended: %w", b.postgres.Err())
	case <-server:
		return fmt.Errorf("the own Redis ended: %w", b.server.Err())
	case <-ctx.Done():
		return nil
	}
}

// stop ends what was started, the last first.
func (b *backings) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	var failed error
	if b.client != nil {
		failed = errors.Join(failed, b.client.Close())
	}
	if b.server != nil {
		failed = errors.Join(failed, b.server.Stop(ctx))
	}
	if b.alone != nil {
		failed = errors.Join(failed, b.alone.Close(ctx))
	}
	if b.postgres != nil {
		failed = errors.Join(failed, b.postgres.Stop(ctx))
	}
	return failed
}

// urlFile holds, for admin-key, the address of the Postgres that runs in the data folder.
func urlFile(c config) string { return filepath.Join(c.Data, "database-url") }
