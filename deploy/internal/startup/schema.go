package startup

import (
	"context"
	"errors"

	"github.com/ironplane/ironplane/deploy/internal/datastores"
	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
)

// inSchemas calls do with the schema of each service, one after the other. The installation may run meanwhile.
func inSchemas(
	ctx context.Context,
	c Config,
	services []service.Definition,
	do func(context.Context, service.Definition, *pg.DB) error,
) error {
	return asAdministrator(ctx, c, func(ctx context.Context, admin secret.String) error {
		for _, d := range services {
			db, err := product.OpenSchema(ctx, admin, d.Name)
			if err != nil {
				return err
			}
			err = do(ctx, d, db.DB)
			db.Close()
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// asAdministrator calls do with the URL of the installation's database. It starts Postgres if the installation does not run.
func asAdministrator(ctx context.Context, c Config, do func(ctx context.Context, admin secret.String) error) (err error) {
	servers := &datastores.Servers{}
	defer func() { err = errors.Join(err, servers.Stop(ctx)) }()
	starting, cancel := context.WithTimeout(ctx, datastores.StartTimeout)
	defer cancel()
	admin, err := servers.Administrator(starting, c.Datastores)
	if err != nil {
		return err
	}
	return do(ctx, admin)
}

// alone claims the database, bootstraps it, and calls do with the URLs of the services' schemas. It returns an error if the
// installation runs.
func alone(ctx context.Context, c Config, do func(ctx context.Context, urls map[string]secret.String) error) error {
	return asAdministrator(ctx, c, func(ctx context.Context, admin secret.String) error {
		claim, err := product.NewClaim(ctx, admin)
		if err != nil {
			return err
		}
		defer claim.Close(context.WithoutCancel(ctx))
		urls, err := product.Bootstrap(ctx, admin, c.Datastores.Data)
		if err != nil {
			return err
		}
		return do(ctx, urls)
	})
}

// runPostgres runs the Postgres of the data folder until ctx ends.
func runPostgres(ctx context.Context, c Config) (err error) {
	if !c.Datastores.DatabaseURL.IsZero() {
		return errors.New("DATABASE_URL names another PostgreSQL; unset it to start the installation's own")
	}
	servers := &datastores.Servers{}
	defer func() { err = errors.Join(err, servers.Stop(ctx)) }()
	starting, cancel := context.WithTimeout(ctx, datastores.StartTimeout)
	defer cancel()
	if _, err := servers.Administrator(starting, c.Datastores); err != nil {
		return err
	}
	return servers.Wait(ctx)
}
