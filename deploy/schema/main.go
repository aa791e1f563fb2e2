// Schema writes the present schema of each service to services/<name>/schema/schema.sql, and the tables that all services have
// to pkg/runtime/host/schema.sql. It reads them from PostgreSQL's catalogue after it has run all migrations.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/devservers"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/postgres/provision"
	"github.com/ironplane/ironplane/pkg/runtime/host"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := write(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "schema:", err)
		os.Exit(1)
	}
}

// shared is the name of a service without migrations of its own. Its schema has only the tables that all services have.
const shared = "shared"

func write(ctx context.Context, args []string) (err error) {
	if len(args) != 1 {
		return errors.New("usage: schema ROOT")
	}
	dir, err := os.MkdirTemp("", "ironplane-schema-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o711); err != nil { // PostgreSQL may run as another user
		return err
	}
	server, err := devservers.StartPostgres(ctx, devservers.PostgresOptions{Dir: filepath.Join(dir, "postgres")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop(context.WithoutCancel(ctx))) }()

	roles := map[string]provision.Role{shared: {Password: secret.New(shared), Settings: pool.RoleSettings(shared, nil)}}
	for _, d := range product.Services {
		roles[d.Name] = product.NewRole(d.Name, secret.New(d.Name), 0)
	}
	if err := provision.Database(ctx, server.URL("postgres"), "", roles); err != nil {
		return err
	}
	describe := func(d service.Definition) ([]statement, error) {
		url, err := provision.ServiceURL(server.URL("postgres"), "", d.Name, roles[d.Name].Password)
		if err != nil {
			return nil, err
		}
		db, err := pool.Open(ctx, url.Reveal(), 2, pool.Options{})
		if err != nil {
			return nil, err
		}
		defer db.Close()
		if err := host.Migrate(ctx, d, db, slog.New(slog.DiscardHandler)); err != nil {
			return nil, err
		}
		return catalogue(ctx, db.DB, d.Name)
	}
	common, err := describe(service.Definition{Name: shared})
	if err != nil {
		return err
	}
	if err := writeSchema(filepath.Join(args[0], "pkg/runtime/host/schema.sql"), "every service", common); err != nil {
		return err
	}
	for _, d := range product.Services {
		statements, err := describe(d)
		if err != nil {
			return err
		}
		file := filepath.Join(args[0], "services", d.Name, "schema/schema.sql")
		note := "The tables that every service has are in pkg/runtime/host/schema.sql."
		if err := writeSchema(file, "the "+d.Name+" service", exclude(statements, common), note); err != nil {
			return err
		}
	}
	return nil
}
