package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/backing"
	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/secret"
)

// ownDatabase is the name of the database in a Postgres of our own.
const ownDatabase = "ironplane"

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
	if err := b.claim(ctx, admin); err != nil {
		return nil, err
	}
	prefix := rolePrefix(admin)
	password := secret.New(rand.Text()) // of the services' roles, for as long as this process runs
	if err := pg.Bootstrap(ctx, admin.Reveal(), prefix, product.Names(), password); err != nil {
		return nil, err
	}
	urls := map[string]secret.String{}
	for _, name := range product.Names() {
		url, err := pg.ServiceURL(admin.Reveal(), prefix, name, password)
		if err != nil {
			return nil, err
		}
		urls[name] = url
	}
	return urls, nil
}

func (b *backings) startPostgres(ctx context.Context, c config) (admin secret.String, err error) {
	b.postgres, err = backing.StartPostgres(ctx, backing.PostgresOptions{Dir: postgresDir(c), Durable: true})
	if err != nil {
		return secret.String{}, err
	}
	conn, err := pgx.Connect(ctx, b.postgres.URL("postgres"))
	if err != nil {
		return secret.String{}, fmt.Errorf("connect to the own Postgres: %w", err)
	}
	defer conn.Close(ctx)
	var exists bool
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", ownDatabase).Scan(&exists)
	if err == nil && !exists {
		_, err = conn.Exec(ctx, "CREATE DATABASE "+ownDatabase)
	}
	if err != nil {
		return secret.String{}, fmt.Errorf("create the database: %w", err)
	}
	url := b.postgres.URL(ownDatabase)
	if err := os.WriteFile(urlFile(c), []byte(url), 0o600); err != nil {
		return secret.String{}, fmt.Errorf("note the database's address: %w", err)
	}
	return secret.New(url), nil
}

// claim sees to it that one standalone runs on a database: a second one would change the passwords of its roles.
func (b *backings) claim(ctx context.Context, admin secret.String) error {
	conn, err := pgx.Connect(ctx, admin.Reveal())
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	b.alone = conn
	var got bool
	if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock(hashtextextended('standalone', 0))").Scan(&got); err != nil {
		return fmt.Errorf("claim the database: %w", err)
	}
	if !got {
		return errors.New("another standalone runs on this database; stop it, or give this one a database of its own")
	}
	return nil
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

// rolePrefix is what the names of the services' roles start with. Roles belong to the whole server, so the name
// of the database is in them.
func rolePrefix(admin secret.String) string {
	u, err := url.Parse(admin.Reveal())
	if err != nil {
		return ""
	}
	return strings.Trim(u.Path, "/") + "_"
}

func postgresDir(c config) string { return filepath.Join(c.Data, "postgres") }

// urlFile holds, for admin-key, the address of the Postgres that runs in the data folder.
func urlFile(c config) string { return filepath.Join(c.Data, "database-url") }
