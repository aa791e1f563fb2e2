package product

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/devservers"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/postgres/provision"
	"github.com/ironplane/ironplane/pkg/runtime/host"
	"github.com/ironplane/ironplane/pkg/secret"
)

// ownDatabase is the name of the database in a Postgres that the installation runs itself.
const ownDatabase = "ironplane"

// PostgresFolder returns where a data folder holds its Postgres.
func PostgresFolder(data string) string { return filepath.Join(data, "postgres") }

// StartPostgres starts the Postgres of a data folder, and creates the product's database in it. admin is the database's URL, as
// its administrator.
func StartPostgres(ctx context.Context, data string) (p *devservers.Postgres, admin secret.String, err error) {
	p, err = devservers.StartPostgres(ctx, devservers.PostgresOptions{Dir: PostgresFolder(data), Durable: true})
	if err != nil {
		return nil, secret.String{}, err
	}
	if err := createDatabase(ctx, p.URL("postgres")); err != nil {
		return nil, secret.String{}, errors.Join(fmt.Errorf("create the database: %w", err), p.Stop(context.WithoutCancel(ctx)))
	}
	return p, secret.New(p.URL(ownDatabase)), nil
}

// createDatabase creates the product's database unless it exists.
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

// Claim is a lock that lets one process at a time use a database.
type Claim struct {
	conn  *pgx.Conn     // holds the lock until it closes
	admin secret.String // the database's URL, as its administrator
	name  string        // the connection's application_name
}

var errClaimed = errors.New("another standalone runs on this database; stop it, or give this one a database of its own")

// NewClaim claims the database. It returns an error if another process has claimed it.
func NewClaim(ctx context.Context, admin secret.String) (*Claim, error) {
	c := &Claim{admin: admin, name: "standalone " + rand.Text()}
	return c, c.acquire(ctx)
}

func (c *Claim) acquire(ctx context.Context) error {
	conn, err := pool.Connect(ctx, c.admin.Reveal())
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	// If this process lost its connection and the server has not noticed, that connection still holds the lock.
	_, err = conn.Exec(ctx, "SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity WHERE application_name = $1", c.name)
	if err == nil {
		_, err = conn.Exec(ctx, "SELECT set_config('application_name', $1, false)", c.name)
	}
	var locked bool
	if err == nil {
		locked, err = provision.TryLock(ctx, conn, "standalone")
	}
	switch {
	case err != nil:
		err = fmt.Errorf("claim the database: %w", err)
	case !locked:
		err = errClaimed
	default:
		c.conn = conn
		return nil
	}
	return errors.Join(err, conn.Close(ctx))
}

const (
	claimInterval = 500 * time.Millisecond // between two attempts to acquire a lost claim again
	claimTimeout  = 10 * time.Second       // of one attempt
)

// Hold acquires the claim again whenever its connection ends, as it does when the server restarts. It returns nil when ctx
// ends, and an error if another process has claimed the database meanwhile.
func (c *Claim) Hold(ctx context.Context) error {
	for {
		if _, err := c.conn.WaitForNotification(ctx); ctx.Err() != nil {
			return nil
		} else if err != nil { // nothing sends notifications: the connection has ended
			_ = c.Close(ctx)
		}
		for c.conn.IsClosed() {
			attempt, cancel := context.WithTimeout(ctx, claimTimeout)
			err := c.acquire(attempt)
			cancel()
			if errors.Is(err, errClaimed) {
				return err
			}
			if err == nil {
				break
			}
			select {
			case <-time.After(claimInterval):
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// WithConnection calls do with another connection as the administrator. The claim's own connection stays in a transaction, and
// a statement there would keep a snapshot, which stops VACUUM and CREATE INDEX CONCURRENTLY.
func (c *Claim) WithConnection(ctx context.Context, do func(*pgx.Conn) error) error {
	conn, err := pool.Connect(ctx, c.admin.Reveal())
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return do(conn)
}

// Close releases the claim.
func (c *Claim) Close(ctx context.Context) error { return c.conn.Close(ctx) }

// Bootstrap creates the roles, schemas and extensions that the services lack in a database, and returns the URL of each
// service's schema by the service's name. It stores the passwords of their roles in the data folder.
func Bootstrap(ctx context.Context, admin secret.String, data string) (map[string]secret.String, error) {
	prefix := rolePrefix(admin)
	roles := map[string]provision.Role{}
	for _, name := range Names() {
		password, err := ensurePassword(passwordFile(data, name))
		if err != nil {
			return nil, fmt.Errorf("store the password of %s's role: %w", name, err)
		}
		roles[name] = NewRole(name, password, 0)
	}
	if err := provision.Database(ctx, admin.Reveal(), prefix, roles); err != nil {
		return nil, err
	}
	if err := MarkLostSchemas(ctx, admin); err != nil {
		return nil, err
	}
	urls := map[string]secret.String{}
	for name := range roles {
		read := func() (string, error) {
			password, err := os.ReadFile(passwordFile(data, name))
			if err != nil {
				return "", err
			}
			url, err := provision.ServiceURL(admin.Reveal(), prefix, name, secret.New(strings.TrimSpace(string(password))))
			return url.Reveal(), err
		}
		url, err := read()
		if err != nil {
			return nil, err
		}
		urls[name] = secret.New(url, read)
	}
	return urls, nil
}

// NewRole returns the role of the service with this name.
func NewRole(name string, password secret.String, connections int) provision.Role {
	role := provision.Role{Password: password, Connections: connections}
	for _, d := range Services {
		if d.Name == name {
			role.Settings = pool.RoleSettings(name, d.Parameters)
		}
	}
	return role
}

func passwordFile(data, service string) string { return filepath.Join(data, "passwords", service) }

// ensurePassword returns the password in a file. It creates the file, with a random password, if it does not exist.
func ensurePassword(path string) (secret.String, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return secret.String{}, err
	}
	if err := writeSecret(path, secret.New(rand.Text())); err != nil && !errors.Is(err, fs.ErrExist) {
		return secret.String{}, err
	}
	text, err := os.ReadFile(path)
	return secret.New(strings.TrimSpace(string(text))), err
}

// rolePrefix returns the beginning of the names of the services' roles. Roles belong to the whole server, so their names begin
// with the database's.
func rolePrefix(admin secret.String) string {
	config, err := pgx.ParseConfig(admin.Reveal())
	if err != nil {
		return ""
	}
	return config.Database + "_"
}

// OpenSchema opens a pool of one connection to a service's schema, as the administrator.
func OpenSchema(ctx context.Context, admin secret.String, service string) (*pool.Pool, error) {
	u, err := url.Parse(admin.Reveal())
	if err != nil {
		return nil, errors.New("DATABASE_URL is not a URL") // err would show the password
	}
	query := u.Query()
	query.Set("search_path", service+",ext")
	u.RawQuery = query.Encode()
	return pool.Open(ctx, u.String(), 1, pool.Options{})
}

// Migrate brings the services' schemas up to date.
func Migrate(ctx context.Context, urls map[string]secret.String) error {
	for _, s := range Services {
		db, err := pool.Open(ctx, urls[s.Name].Reveal(), 1, pool.Options{})
		if err != nil {
			return fmt.Errorf("migrate %s: %w", s.Name, err)
		}
		err = host.Migrate(ctx, s, db, slog.New(slog.DiscardHandler))
		db.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
