package startup

import (
	"context"
	"errors"
	"io"

	"github.com/ironplane/ironplane/deploy/internal/backings"
	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
)

// inSchemas does something in the schemas of services, one after the other, also while the installation runs.
func inSchemas(ctx context.Context, c Config, services []service.Definition, do func(context.Context, service.Definition, *pg.DB) error) error {
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

// takeUp takes up what was restored while the installation does not run.
func takeUp(ctx context.Context, c Config, screen io.Writer) error {
	return asAdministrator(ctx, c, func(ctx context.Context, admin secret.String) error {
		claim, err := product.Claim(ctx, admin)
		if err != nil {
			return err
		}
		defer claim.Close(context.WithoutCancel(ctx))
		urls, err := product.Bootstrap(ctx, admin)
		if err != nil {
			return err
		}
		return product.TakeUp(ctx, urls, c.Restored, screen)
	})
}
