package startup

import (
	"context"
	"errors"

	"github.com/ironplane/ironplane/deploy/internal/backings"
	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
)

// inSchemas does something in the schemas of services, one after the other, also while the installation runs.
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

// asAdministrator does something in the database of an installation.
func asAdministrator(ctx context.Context, c Config, do func(ctx context.Context, admin secret.String) error) (err error) {
	parts := &backings.Backings{}
	defer func() { err = errors.Join(err, parts.Stop(ctx)) }()
	starting, cancel := context.WithTimeout(ctx, backings.StartTime)
	defer cancel()
	admin, err := parts.Administrator(starting, c.Backings)
	if err != nil {
		return err
	}
	return do(ctx, admin)
}

// alone does something in the schemas of an installation that does not run. It makes what the services need in a database.
func alone(ctx context.Context, c Config, do func(ctx context.Context, urls map[string]secret.String) error) error {
	return asAdministrator(ctx, c, func(ctx context.Context, admin secret.String) error {
		claim, err := product.NewClaim(ctx, admin)
		if err != nil {
			return err
		}
		defer claim.Close(context.WithoutCancel(ctx))
		urls, err := product.Bootstrap(ctx, admin, c.Backings.Data)
		if err != nil {
			return err
		}
		return do(ctx, urls)
	})
}

// runPostgres runs the Postgres of a data folder until ctx ends.
func runPostgres(ctx context.Context, c Config) (err error) {
	if !c.Backings.DatabaseURL.IsZero() {
		return errors.New("DATABASE_URL names a PostgreSQL: there is no own one to start")
	}
	parts := &backings.Backings{}
	defer func() { err = errors.Join(err, parts.Stop(ctx)) }()
	starting, cancel := context.WithTimeout(ctx, backings.StartTime)
	defer cancel()
	if _, err := parts.Administrator(starting, c.Backings); err != nil {
		return err
	}
	return parts.Ended(ctx)
}
