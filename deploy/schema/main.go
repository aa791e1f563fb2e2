// Schema writes, from the catalogue of a new installation, what each service's schema is: services/<name>/schema/schema.sql, and
// for what all of them have pkg/runtime/host/schema.sql.
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

// shared is a service with no migrations of its own.
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
	if err := os.Chmod(dir, 0o711); err != nil { // PostgreSQL's user comes through it
		return err
	}
	server, err := devservers.StartPostgres(ctx, devservers.PostgresOptions{Dir: filepath.Join(dir, "postgres")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop(context.WithoutCancel(ctx))) }()

	passwords := map[string]secret.String{shared: secret.New(shared)}
	for _, d := range product.Services {
		passwords[d.Name] = secret.New(d.Name)
	}
	if err := provision.Database(ctx, server.URL("postgres"), "", passwords); err != nil {
		return err
	}
	describe := func(d service.Definition) ([]statement, error) {
		url, err := provision.ServiceURL(server.URL("postgres"), "", d.Name, passwords[d.Name])
		if err != nil {
			return nil, err
		}
		db, err := pool.Open(ctx, url.Reveal(), 2, nil)
		if err != nil {
			return nil, err
		}
		defer db.Close()
		if err := host.Migrate(ctx, d, db, slog.New(slog.DiscardHandler)); err != nil {
			return nil, err
		}
		return catalogue(ctx, db.DB, d.Name)
	}
	inAll, err := describe(service.Definition{Name: shared})
	if err != nil {
		return err
	}
	if err := save(filepath.Join(args[0], "pkg/runtime/host/schema.sql"), "every service", inAll); err != nil {
		return err
	}
	for _, d := range product.Services {
		all, err := describe(d)
		if err != nil {
			return err
		}
		file := filepath.Join(args[0], "services", d.Name, "schema/schema.sql")
		note := "What every service's schema has besides is in pkg/runtime/host/schema.sql."
		if err := save(file, "the "+d.Name+" service", without(all, inAll), note); err != nil {
			return err
		}
	}
	return nil
}
