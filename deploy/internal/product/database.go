package product

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/backing"
	"github.com/ironplane/ironplane/backing/provision"
	"github.com/ironplane/ironplane/pkg/pool"
	"github.com/ironplane/ironplane/pkg/secret"
)

// ownDatabase is the name of the database in a Postgres of our own.
const ownDatabase = "ironplane"

// PostgresFolder is where in a data folder the Postgres lies.
func PostgresFolder(data string) string { return filepath.Join(data, "postgres") }

// StartPostgres starts the Postgres of a data folder, and answers the address of the product's database in it, as its
// administrator.
func StartPostgres(ctx context.Context, data string) (p *backing.Postgres, admin secret.String, err error) {
	p, err = backing.StartPostgres(ctx, backing.PostgresOptions{Dir: PostgresFolder(data), Durable: true})
	if err != nil {
		return nil, secret.String{}, err
	}
	if err := createDatabase(ctx, p.URL("postgres")); err != nil {
		return nil, secret.String{}, errors.Join(fmt.Errorf("create the database: %w", err), p.Stop(context.WithoutCancel(ctx)))
	}
	return p, secret.New(p.URL(ownDatabase)), nil
}

func createDatabase(ctx context.Context, server string) error {
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var exists bool
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", ownDatabase).Scan(&exists)
	if err == nil && !exists {
		_, err = conn.Exec(ctx, "CREATE DATABASE "+ownDatabase)
	}
	return err
}

// Claim sees to it that one process at a time bootstraps a database and uses it: a second one would change the
// passwords of its roles. The claim lasts as long as the connection.
func Claim(ctx context.Context, admin secret.String) (*pgx.Conn, error) {
	conn, err := pool.Connect(ctx, admin.Reveal())
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	got, err := provision.TryLock(ctx, conn, "standalone")
	switch {
	case err != nil:
		err = fmt.Errorf("claim the database: %w", err)
	case !got:
		err = errors.New("another standalone runs on this database; stop it, or give this one a database of its own")
	default:
		return conn, nil
	}
	return nil, errors.Join(err, conn.Close(ctx))
}

// Bootstrap makes what the services need in a database, and answers the URL of each one's schema.
func Bootstrap(ctx context.Context, admin secret.String) (map[string]secret.String, error) {
	prefix := rolePrefix(admin)
	passwords := map[string]secret.String{} // of the services' roles, until the next bootstrap
	for _, name := range Names() {
		passwords[name] = secret.New(rand.Text())
	}
	if err := provision.Database(ctx, admin.Reveal(), prefix, passwords); err != nil {
		return nil, err
	}
	urls := map[string]secret.String{}
	for name, password := range passwords {
		url, err := provision.ServiceURL(admin.Reveal(), prefix, name, password)
		if err != nil {
			return nil, err
		}
		urls[name] = url
	}
	return urls, nil
}

// rolePrefix is what the names of the services' roles start with. Roles belong to the whole server, so the name
// of the database is in them.
func rolePrefix(admin secret.String) string {
	config, err := pgx.ParseConfig(admin.Reveal())
	if err != nil {
		return ""
	}
	return config.Database + "_"
}

// OpenSchema opens a service's schema as the administrator.
func OpenSchema(ctx context.Context, admin secret.String, service string) (*pool.Pool, error) {
	u, err := url.Parse(admin.Reveal())
	if err != nil {
		return nil, errors.New("DATABASE_URL is not a URL") // err would show the password
	}
	query := u.Query()
	query.Set("search_path", service+",ext")
	u.RawQuery = query.Encode()
	return pool.Open(ctx, u.String(), 1)
}

// Migrate brings the services' schemas up to date.
func Migrate(ctx context.Context, urls map[string]secret.String) error {
	for _, s := range Services {
		db, err := pool.Open(ctx, urls[s.Name].Reveal(), 1)
		if err != nil {
			return fmt.Errorf("migrate %s: %w", s.Name, err)
		}
		err = s.Migrate(ctx, db)
		db.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
