package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/devservers"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/postgres/provision"
	"github.com/ironplane/ironplane/pkg/runtime/host"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/network"
)

// database is the PostgreSQL that the candidates share.
type database struct {
	postgres *devservers.Postgres
	version  string
	bin      string            // the folder of PostgreSQL's programs
	urls     map[string]string // the services' URLs by service
}

const (
	seedTimeout = 5 * time.Minute
	rolePrefix  = "bench_"
	// reservedConnections is the number of connections for all pools and this program, besides those of pgbench.
	reservedConnections = 100
)

// startDatabase starts a new PostgreSQL in a folder, and fills it.
func startDatabase(ctx context.Context, folder string, s options) (db *database, err error) {
	ctx, cancel := context.WithTimeout(ctx, seedTimeout)
	defer cancel()
	postgres, err := devservers.StartPostgres(
		ctx,
		devservers.PostgresOptions{Dir: folder, MaxConnections: max(s.connections, allocators) + reservedConnections},
	)
	if err != nil {
		return nil, err
	}
	db = &database{postgres: postgres}
	defer func() {
		if err != nil {
			err = errors.Join(err, db.stop(ctx))
		}
	}()
	if err := db.describe(ctx); err != nil {
		return nil, err
	}
	if err := db.assignSchemas(ctx); err != nil {
		return nil, err
	}
	if err := db.seed(ctx, s.rows); err != nil {
		return nil, fmt.Errorf("seed the port speeds: %w", err)
	}
	return db, nil
}

func (db *database) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return db.postgres.Stop(ctx)
}

// describe reads the server's version and the folder of its programs.
func (db *database) describe(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, db.adminURL())
	if err != nil {
		return fmt.Errorf("connect to Postgres: %w", err)
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, "SELECT current_setting('server_version'), setting FROM pg_config WHERE name = 'BINDIR'").
		Scan(&db.version, &db.bin)
	if err != nil {
		return fmt.Errorf("read Postgres' version: %w", err)
	}
	return nil
}

func (db *database) adminURL() string { return db.postgres.URL("postgres") }

// assignSchemas creates the services' roles and schemas.
func (db *database) assignSchemas(ctx context.Context) error {
	roles := map[string]provision.Role{}
	for _, name := range product.Names() {
		roles[name] = product.NewRole(name, secret.New(rand.Text()), 0)
	}
	if err := provision.Database(ctx, db.adminURL(), rolePrefix, roles); err != nil {
		return err
	}
	db.urls = map[string]string{}
	for name, role := range roles {
		url, err := provision.ServiceURL(db.adminURL(), rolePrefix, name, role.Password)
		if err != nil {
			return err
		}
		db.urls[name] = url.Reveal()
	}
	return nil
}

// seed creates port speeds with the ids from 1.
func (db *database) seed(ctx context.Context, rows int) error {
	pool, err := pool.Open(ctx, db.urls[network.Name], 2, pool.Options{})
	if err != nil {
		return err
	}
	err = host.Migrate(ctx, network.Definition, pool, slog.New(slog.DiscardHandler))
	pool.Close()
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, db.urls[network.Name])
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	speeds := pgx.CopyFromSlice(rows, func(i int) ([]any, error) {
		id := i + 1
		return []any{id, fmt.Sprintf("%d Mbit/s", id), fmt.Sprintf("PORT-%d", id), id}, nil
	})
	if _, err := conn.CopyFrom(ctx, pgx.Identifier{"port_speed"}, []string{"id", "name", "billing_id", "speed"}, speeds); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "VACUUM (ANALYZE, FREEZE) port_speed") // autovacuum would disturb a round
	return err
}

// findPgbench looks for pgbench in the server's folder, where it has the same version, and then on PATH.
func (db *database) findPgbench() (string, error) {
	if program, err := exec.LookPath(filepath.Join(db.bin, "pgbench")); err == nil {
		return program, nil
	}
	if program, err := exec.LookPath("pgbench"); err == nil {
		return program, nil
	}
	return "", fmt.Errorf("pgbench is neither in %s nor on PATH", db.bin)
}
