package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/devservers/child"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/secret"
)

const (
	dumpLockTimeout = 5 * time.Minute  // for a lock that a migration holds
	stopTimeout     = 10 * time.Second // of a client program that is told to stop
)

// schema is a service's schema in a database.
type schema struct {
	service, owner string
	migration      int64 // the number of the newest one
	isEmpty        bool
}

// findSchemas returns the schemas of services that exist in the database.
func findSchemas(ctx context.Context, conn *pgx.Conn) (all []schema, err error) {
	for _, name := range product.Names() {
		s := schema{service: name}
		err := conn.QueryRow(
			ctx,
			"SELECT pg_get_userbyid(nspowner), to_regclass($1) IS NULL FROM pg_namespace WHERE nspname = $2",
			pgx.Identifier{name, "migration"}.Sanitize(), name,
		).Scan(&s.owner, &s.isEmpty)
		if errors.Is(err, pgx.ErrNoRows) {
			continue
		}
		if err == nil && !s.isEmpty {
			err = conn.QueryRow(
				ctx, "SELECT coalesce(max(version_id), 0) FROM "+pgx.Identifier{name, "migration"}.Sanitize()+" WHERE is_applied",
			).Scan(&s.migration)
		}
		if err != nil {
			return nil, fmt.Errorf("look at the schema %s: %w", name, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// connect opens a connection to the database as its administrator.
func connect(ctx context.Context, admin secret.String) (*pgx.Conn, error) {
	conn, err := pool.Connect(ctx, admin.Reveal())
	if err != nil {
		return nil, fmt.Errorf("connect as the database's administrator: %w", err)
	}
	return conn, nil
}

// exportSnapshot begins a transaction whose view of the database the returned snapshot gives to other sessions, until conn closes.
func exportSnapshot(ctx context.Context, conn *pgx.Conn) (snapshot string, err error) {
	for _, statement := range []string{
		"SET idle_in_transaction_session_timeout = 0",
		"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return "", fmt.Errorf("export a snapshot: %w", err)
		}
	}
	if err := conn.QueryRow(ctx, "SELECT pg_export_snapshot()").Scan(&snapshot); err != nil {
		return "", fmt.Errorf("export a snapshot: %w", err)
	}
	return snapshot, nil
}

// dump writes a schema, as the snapshot has it, to a file.
func dump(ctx context.Context, admin secret.String, service, snapshot string, to *os.File) error {
	return runClient(ctx, admin, nil, to, "pg_dump", "--format=custom", "--schema="+service, "--snapshot="+snapshot,
		"--lock-wait-timeout="+strconv.FormatInt(dumpLockTimeout.Milliseconds(), 10))
}

// load restores an empty schema from a dump, completely or not at all.
func load(ctx context.Context, admin secret.String, s schema, from io.Reader) error {
	return runClient(ctx, admin, from, nil, "pg_restore", "--exit-on-error", "--single-transaction", "--no-owner", "--no-privileges",
		"--role="+s.owner, "--schema="+s.service)
}

// runClient runs a client program of PostgreSQL with the database. The password is in its environment, which only its user and root
// can read.
func runClient(ctx context.Context, admin secret.String, in io.Reader, out io.Writer, name string, arguments ...string) error {
	program, err := exec.LookPath(name)
	if err != nil {
		return fmt.Errorf("%s is not installed; Debian's package postgresql-client has it", name)
	}
	target, password, err := splitPassword(admin)
	if err != nil {
		return err
	}
	var tail child.Tail
	cmd := exec.CommandContext(ctx, program, append(arguments, "--dbname="+target)...)
	cmd.Env = append(os.Environ(), "PGPASSWORD="+password)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, &tail
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = stopTimeout
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(tail.String()))
	}
	return nil
}

// libpqParameters are the parameters of a URL that the client programs of all supported versions know.
var libpqParameters = []string{
	"host", "hostaddr", "port", "user", "sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl",
	"connect_timeout",
}

// splitPassword returns a database URL without its password, and the password.
func splitPassword(admin secret.String) (target, password string, err error) {
	u, err := url.Parse(admin.Reveal())
	if err != nil {
		return "", "", errors.New("the database URL is not a URL") // err would show the password
	}
	query, kept := u.Query(), url.Values{}
	for _, name := range libpqParameters {
		if query.Has(name) {
			kept.Set(name, query.Get(name))
		}
	}
	password, _ = u.User.Password()
	if query.Has("password") {
		password = query.Get("password")
	}
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	u.RawQuery = strings.ReplaceAll(kept.Encode(), "+", "%20") // libpq does not decode +
	return u.String(), password, nil
}
