// Package testkit gives tests real servers: a Postgres with a database for each test, a Redis, and an HTTP client for JSON. All
// of them end with the test.
package testkit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/devservers"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/postgres/provision"
	"github.com/ironplane/ironplane/pkg/runtime/host"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
)

// Service is the schema of a service.
type Service struct {
	Name       string
	Migrations fs.FS // nil: none
}

const (
	// connections is the maximum number of connections in a test's pool.
	connections = 10
	// waitTimeout limits the time for a server to start, stop or do one thing. It is long enough for a busy machine.
	waitTimeout = 5 * time.Minute
)

// Tune fills in what a test does not set: time on a busy machine, and passwords that are cheap to hash.
func Tune(t service.Tuning) service.Tuning {
	t.MinTimeout, t.PasswordMemory = cmp.Or(t.MinTimeout, time.Minute), cmp.Or(t.PasswordMemory, 64)
	return t
}

var server struct {
	mu        sync.Mutex
	roles     sync.Mutex
	postgres  *devservers.Postgres
	dir       string
	templates map[string]*template
	databases atomic.Int64
}

// template is a migrated database that test databases are copied from.
type template struct {
	once sync.Once
	name string
	err  error
}

const rolePrefix = "test_"

var password = secret.New("for-tests-only")

// Main runs a package's tests and stops the servers that they started. TestMain calls it in every package that uses Databases.
func Main(m *testing.M) {
	debug.SetGCPercent(400) // tests keep little memory, but hash passwords with a lot of it
	debug.SetMemoryLimit(2 << 30)
	code := m.Run()
	shared.end()
	if server.postgres != nil {
		ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
		defer cancel()
		if err := server.postgres.Stop(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		_ = os.RemoveAll(server.dir)
	}
	os.Exit(code)
}

// Databases creates a migrated database, and returns the URLs at which the services reach their schemas in it.
func Databases(t testing.TB, services ...Service) map[string]secret.String {
	t.Helper()
	admin := postgres(t)
	from := templateFor(t, admin, services)
	name := fmt.Sprintf("%s_%d", from, server.databases.Add(1))
	run(t, admin.URL("postgres"), "CREATE DATABASE "+name+" TEMPLATE "+from+" STRATEGY FILE_COPY") // WAL_LOG would write each page to the log
	t.Cleanup(func() { run(t, admin.URL("postgres"), "DROP DATABASE "+name+" WITH (FORCE)") })
	urls := map[string]secret.String{}
	for _, s := range services {
		url, err := provision.ServiceURL(admin.URL(name), rolePrefix, s.Name, password)
		if err != nil {
			t.Fatal(err)
		}
		urls[s.Name] = url
	}
	return urls
}

// AdminURL returns the administrator's URL of the database with a service's schema.
func AdminURL(t testing.TB, url secret.String) secret.String {
	t.Helper()
	config, err := pgx.ParseConfig(url.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	return secret.New(postgres(t).URL(config.Database))
}

// Database creates a migrated database, and returns a service's pool on it.
func Database(t testing.TB, service string, migrations fs.FS) *pg.DB {
	t.Helper()
	return open(t, Databases(t, Service{service, migrations})[service])
}

func open(t testing.TB, url secret.String) *pg.DB {
	t.Helper()
	opened, err := pool.Open(t.Context(), url.Reveal(), connections, pool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.Close)
	return opened.DB
}

// Execute changes a database directly, without its service.
func Execute(t testing.TB, db *pg.DB, sql string, args ...any) {
	t.Helper()
	err := db.InTx(t.Context(), func(tx *pg.Tx) error {
		tx.Unrecorded("a test")
		if _, err := tx.Exec(t.Context(), "SELECT"); err != nil { // the first statement can have only one command
			return err
		}
		_, err := tx.Exec(t.Context(), sql, args...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func postgres(t testing.TB) *devservers.Postgres {
	t.Helper()
	server.mu.Lock()
	defer server.mu.Unlock()
	if server.postgres != nil {
		return server.postgres
	}
	dir, err := newFolder(false)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	started, err := devservers.StartPostgres(ctx, devservers.PostgresOptions{Dir: filepath.Join(dir, "postgres"), MaxConnections: 500})
	if err != nil {
		_ = os.RemoveAll(dir)
		t.Fatal(err)
	}
	server.postgres, server.dir, server.templates = started, dir, map[string]*template{}
	return started
}

func templateFor(t testing.TB, admin *devservers.Postgres, services []Service) string {
	t.Helper()
	names := make([]string, len(services))
	for i, s := range services {
		names[i] = s.Name
	}
	name := "t_" + strings.Join(names, "_")
	server.mu.Lock()
	from := server.templates[name]
	if from == nil {
		from = &template{name: name}
		server.templates[name] = from
	}
	server.mu.Unlock()
	from.once.Do(func() { from.err = makeTemplate(admin, name, names, services) })
	if from.err != nil {
		t.Fatal(from.err)
	}
	return name
}

func makeTemplate(admin *devservers.Postgres, name string, names []string, services []Service) error {
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	if err := execute(ctx, admin.URL("postgres"), "CREATE DATABASE "+name); err != nil {
		return err
	}
	roles := map[string]provision.Role{}
	for _, service := range names {
		roles[service] = provision.Role{Password: password, Settings: pool.RoleSettings(service, nil)}
	}
	server.roles.Lock() // all databases share the roles
	err := provision.Database(ctx, admin.URL(name), rolePrefix, roles)
	server.roles.Unlock()
	if err != nil {
		return err
	}
	for _, s := range services {
		url, err := provision.ServiceURL(admin.URL(name), rolePrefix, s.Name, password)
		if err != nil {
			return err
		}
		db, err := pool.Open(ctx, url.Reveal(), 2, pool.Options{})
		if err != nil {
			return err
		}
		err = host.Migrate(ctx, service.Definition{Name: s.Name, Migrations: s.Migrations}, db, slog.New(slog.DiscardHandler))
		db.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func run(t testing.TB, url, statement string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	if err := execute(ctx, url, statement); err != nil {
		t.Fatal(err)
	}
}

func execute(ctx context.Context, url, statement string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for {
		_, err := conn.Exec(ctx, statement)
		if err == nil {
			return nil
		}
		if used, ok := errors.AsType[*pgconn.PgError](err); !ok || used.Code != inUse {
			return fmt.Errorf("%s: %w", statement, err)
		}
		select { // Postgres has waited five seconds for sessions to end
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", statement, ctx.Err())
		}
	}
}

// inUse is the SQLSTATE of a database that cannot be copied or dropped because it has sessions.
const inUse = "55006"

// WaitForRedis gives Redis the time that a slow machine needs. It is for tests that do not test a slow Redis.
func WaitForRedis(client *cache.Client) {
	const timeout = 30 * time.Second
	client.OptionalTimeout, client.RequiredTimeout = timeout, timeout
	o := client.Options()
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = timeout, timeout, timeout
}

// Redis starts a Redis for the test. It is a real one if redis-server is installed.
func Redis(t testing.TB) *cache.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	started, err := devservers.StartRedis(ctx, devservers.RedisOptions{})
	if err != nil {
		t.Fatal(err)
	}
	client, err := cache.Open(secret.New(started.URL()))
	if err != nil {
		t.Fatal(err)
	}
	WaitForRedis(client)
	t.Cleanup(func() {
		_ = client.Close()
		ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
		defer cancel()
		if err := started.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return client
}
