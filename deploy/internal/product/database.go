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

// ownDatabase is the name of the database in a Postgres of our own.
const ownDatabase = "ironplane"

// PostgresFolder is where in a data folder the Postgres lies.
func PostgresFolder(data string) string { return filepath.Join(data, "postgres") }

// StartPostgres starts the Postgres of a data folder, and answers the address of the product's database in it, as its
// administrator.
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

// Claim sees to it that one process at a time uses a database.
type Claim struct {
	conn  *pgx.Conn // as the administrator; the claim lasts as long as it does
	admin secret.String
	name  string // of the connection
}

var errClaimed = errors.New("another standalone runs on this database; stop it, or give this one a database of its own")

// NewClaim fails where another process has claimed the database.
func NewClaim(ctx context.Context, admin secret.String) (*Claim, error) {
	c := &Claim{admin: admin, name: "standalone " + rand.Text()}
	return c, c.take(ctx)
}

func (c *Claim) take(ctx context.Context) error {
	conn, err := pool.Connect(ctx, c.admin.Reveal())
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	// A connection of ours that the server has not missed yet would have the claim.
	_, err = conn.Exec(ctx, "SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity WHERE application_name = $1", c.name)
	if err == nil {
		_, err = conn.Exec(ctx, "SELECT set_config('application_name', $1, false)", c.name)
	}
	var got bool
	if err == nil {
		got, err = provision.TryLock(ctx, conn, "standalone")
	}
	switch {
	case err != nil:
		err = fmt.Errorf("claim the database: %w", err)
	case !got:
		err = errClaimed
	default:
		c.conn = conn
		return nil
	}
	return errors.Join(err, conn.Close(ctx))
}

const (
	// claimPause is how long a claim that was lost waits until it is taken again, and claimTime how long that may take.
	claimPause = 500 * time.Millisecond
	claimTime  = 10 * time.Second
)

// Hold takes the claim again whenever its connection ends, as with a restart of the server, until ctx ends. It fails where
// another process was faster.
func (c *Claim) Hold(ctx context.Context) error {
	for {
		if _, err := c.conn.WaitForNotification(ctx); ctx.Err() != nil {
			return nil
		} else if err != nil { // there are no notifications
			_ = c.Close(ctx)
		}
		for c.conn.IsClosed() {
			taking, cancel := context.WithTimeout(ctx, claimTime)
			err := c.take(taking)
			cancel()
			if errors.Is(err, errClaimed) {
				return err
			}
			if err == nil {
				break
			}
			select {
			case <-time.After(claimPause):
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// Ask asks the database as the administrator, on a connection of its own: the claim's is within a transaction, where what a
// statement has seen is held, so that nothing is vacuumed and no index is made concurrently.
func (c *Claim) Ask(ctx context.Context, ask func(*pgx.Conn) error) error {
	conn, err := pool.Connect(ctx, c.admin.Reveal())
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return ask(conn)
}

// Close gives the claim up.
func (c *Claim) Close(ctx context.Context) error { return c.conn.Close(ctx) }

// Bootstrap makes what the services need in a database and does not have, and answers the URL of each one's schema. The
// passwords of their roles are kept in the data folder.
func Bootstrap(ctx context.Context, admin secret.String, data string) (map[string]secret.String, error) {
	prefix := rolePrefix(admin)
	passwords := map[string]secret.String{}
	for _, name := range Names() {
		password, err := keptPassword(passwordFile(data, name))
		if err != nil {
			return nil, fmt.Errorf("keep the password of %s's role: %w", name, err)
		}
		passwords[name] = password
	}
	if err := provision.Database(ctx, admin.Reveal(), prefix, passwords); err != nil {
		return nil, err
	}
	if err := MarkLost(ctx, admin); err != nil {
		return nil, err
	}
	urls := map[string]secret.String{}
	for name := range passwords {
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

func passwordFile(data, service string) string { return filepath.Join(data, "passwords", service) }

// keptPassword is what a file holds, which is made where it is not there.
func keptPassword(place string) (secret.String, error) {
	if err := os.MkdirAll(filepath.Dir(place), 0o700); err != nil {
		return secret.String{}, err
	}
	if err := keep(place, secret.New(rand.Text())); err != nil && !errors.Is(err, fs.ErrExist) {
		return secret.String{}, err
	}
	text, err := os.ReadFile(place)
	return secret.New(strings.TrimSpace(string(text))), err
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
	return pool.Open(ctx, u.String(), 1, nil)
}

// Migrate brings the services' schemas up to date.
func Migrate(ctx context.Context, urls map[string]secret.String) error {
	for _, s := range Services {
		db, err := pool.Open(ctx, urls[s.Name].Reveal(), 1, nil)
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
