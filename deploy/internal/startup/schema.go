package startup

import (
	"context"
	"errors"
	"net/url"

	"github.com/ironplane/ironplane/deploy/internal/backings"
	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/service"
)

// inSchemas does something in the schemas of services, one after the other, also while the installation runs.
func inSchemas(ctx context.Context, c Config, services []service.Definition, do func(context.Context, service.Definition, *pg.DB) error) (err error) {
	parts := &backings.Backings{}
	defer func() { err = errors.Join(err, parts.Stop(ctx)) }()
	starting, cancel := context.WithTimeout(ctx, backings.StartTime)
	defer cancel()
	admin, err := parts.Administrator(starting, c.Backings)
	if err != nil {
		return err
	}
	u, err := url.Parse(admin.Reveal())
	if err != nil {
		return errors.New("DATABASE_URL is not a URL") // err would show the password
	}
	for _, d := range services {
		query := u.Query()
		query.Set("search_path", d.Name)
		u.RawQuery = query.Encode()
		if err := inSchema(ctx, u.String(), func(ctx context.Context, db *pg.DB) error { return do(ctx, d, db) }); err != nil {
			return err
		}
	}
	return nil
}

func inSchema(ctx context.Context, url string, do func(context.Context, *pg.DB) error) error {
	db, err := pg.Open(ctx, url, 1)
	if err != nil {
		return err
	}
	defer db.Close()
	return do(ctx, db)
}
