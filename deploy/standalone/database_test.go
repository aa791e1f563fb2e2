package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/devservers"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// given is a Postgres that is there already.
type given struct {
	*testing.T
	*devservers.Postgres
	superuser *pgx.Conn
}

func newGiven(t *testing.T) *given {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	postgres, err := devservers.StartPostgres(ctx, devservers.PostgresOptions{Dir: filepath.Join(t.TempDir(), "postgres")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := postgres.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	g := &given{T: t, Postgres: postgres}
	g.superuser = g.connect("postgres")
	return g
}

func (g *given) connect(database string) *pgx.Conn {
	g.Helper()
	conn, err := pgx.Connect(g.Context(), g.URL(database))
	if err != nil {
		g.Fatal(err)
	}
	g.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (g *given) execute(conn *pgx.Conn, statements ...string) {
	g.Helper()
	for _, statement := range statements {
		if _, err := conn.Exec(g.Context(), statement); err != nil {
			g.Fatalf("%s: %v", statement, err)
		}
	}
}

func (g *given) claimed() (pid int64) {
	g.Helper()
	for deadline := time.Now().Add(patience); pid == 0; time.Sleep(20 * time.Millisecond) {
		err := g.superuser.QueryRow(g.Context(), "SELECT coalesce((SELECT pid FROM pg_locks "+
			"WHERE relation = to_regclass('ext.standalone') AND mode = 'ExclusiveLock' AND granted), 0)").
			Scan(&pid)
		if err != nil || time.Now().After(deadline) {
			g.Fatalf("got no claim on the database (%v), want one", err)
		}
	}
	return pid
}

// A second one is refused also once all connections were lost, as with a restart of Postgres; and where another one was
// faster then, this one ends.
func TestClaimIsHeldAnew(t *testing.T) {
	t.Parallel()
	g := newGiven(t)
	environment := map[string]string{"IRONPLANE_DATA": filepath.Join(t.TempDir(), "data"), "DATABASE_URL": g.URL("postgres")}
	r := start(t, environment)
	c := r.client(r.key())
	var holding int
	if err := g.superuser.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity "+
		"WHERE application_name LIKE 'standalone %' AND backend_xmin IS NOT NULL").
		Scan(&holding); err != nil ||
		holding > 0 {
		t.Fatalf("got %d claims that hold a snapshot, which keeps vacuum from its work (%v), want none", holding, err)
	}
	before := g.claimed()
	g.execute(g.superuser, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'postgres' AND pid <> pg_backend_pid()")
	testkit.Eventually(t, "the claim is lost", func() bool { return g.claimed() != before })
	second := launch(t, environment)
	if err := second.exit(); err == nil || !strings.Contains(second.screen.String(), "another standalone runs on this database") {
		t.Fatalf("a second start: got %v and\n%s\nwant a refusal, as another standalone runs on this database", err, second.screen)
	}
	made := c.Do("POST", "/group", `{"name": "Berlin"}`)
	for deadline := time.Now().Add(patience); made.Status == http.StatusServiceUnavailable && time.Now().Before(deadline); time.Sleep(
		100 * time.Millisecond,
	) {
		made = c.Do("POST", "/group", `{"name": "Berlin"}`) // who lost connections is asked again after a second
	}
	made.Want(200)

	// Who waits for the lock has it before a new connection.
	other := g.connect("postgres")
	g.execute(other, "BEGIN")
	locked := make(chan error, 1)
	go func() {
		_, err := other.Exec(t.Context(), "LOCK TABLE ext.standalone IN EXCLUSIVE MODE")
		locked <- err
	}()
	for waits := false; !waits; time.Sleep(time.Millisecond) {
		if err := g.superuser.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_locks "+
			"WHERE relation = 'ext.standalone'::regclass AND NOT granted)").
			Scan(&waits); err != nil {
			t.Fatal(err)
		}
	}
	g.execute(g.superuser, fmt.Sprintf("SELECT pg_terminate_backend(%d)", g.claimed()))
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	if err := r.exit(); err == nil || !strings.Contains(r.screen.String(), "another standalone runs on this database") {
		t.Fatalf("got %v and\n%s\nwant an exit, as another standalone runs on this database", err, r.screen)
	}
}

// The passwords of roles stay as they are where they work, and are set where they do not.
func TestPasswordsOfRolesStay(t *testing.T) {
	t.Parallel()
	g := newGiven(t)
	environment := map[string]string{"IRONPLANE_DATA": filepath.Join(t.TempDir(), "data"), "DATABASE_URL": g.URL("postgres")}
	passwords := func() (all string) {
		t.Helper()
		r := start(t, environment)
		r.stop()
		if err := g.superuser.QueryRow(t.Context(), "SELECT string_agg(rolname || ' ' || rolpassword, ' ' ORDER BY rolname) "+
			"FROM pg_authid WHERE rolname LIKE 'postgres\\_%'").
			Scan(&all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	first := passwords()
	if passwords() != first {
		t.Error("got other passwords of roles, want those that work kept")
	}
	g.execute(g.superuser, "ALTER ROLE postgres_network PASSWORD 'forgotten'")
	second := passwords()
	if second == first {
		t.Error("got the same passwords of roles, want that of postgres_network set again")
	}
	if strings.Split(second, " ")[1] != strings.Split(first, " ")[1] {
		t.Error("got another password of the first role, want only that of postgres_network set again")
	}
}

// A role that may make no roles, and does not own the database, is told what is missing. Once somebody has made that by
// hand, it starts.
func TestRolesByHand(t *testing.T) {
	t.Parallel()
	g := newGiven(t)
	g.execute(g.superuser, "CREATE ROLE app LOGIN PASSWORD 'app'", "CREATE DATABASE plane")
	plane := g.connect("plane")
	config := plane.Config()
	url := fmt.Sprintf("postgres://app:app@%s:%d/plane", config.Host, config.Port)
	if strings.HasPrefix(config.Host, "/") {
		url = fmt.Sprintf("postgres://app:app@/plane?host=%s&port=%d", config.Host, config.Port)
	}
	data := filepath.Join(t.TempDir(), "data")
	environment := map[string]string{"IRONPLANE_DATA": data, "DATABASE_URL": url}
	lacks := func(statements ...string) {
		t.Helper()
		r := launch(t, environment)
		err := r.exit()
		for _, statement := range statements {
			if err == nil || !strings.Contains(r.screen.String(), statement) {
				t.Errorf("got %v and\n%s\nwant an error and %q", err, r.screen, statement)
			}
		}
	}
	lacks(`CREATE SCHEMA ext AUTHORIZATION "app";`)
	g.execute(plane, "CREATE SCHEMA ext AUTHORIZATION app")
	lacks(
		"CREATE EXTENSION pg_trgm SCHEMA ext;",
		`CREATE ROLE "plane_network" LOGIN;`,
		`ALTER ROLE "plane_network" PASSWORD '…';`,
		`CREATE SCHEMA "network" AUTHORIZATION "plane_network";`,
	)
	g.execute(plane, "CREATE EXTENSION pg_trgm SCHEMA ext", "CREATE EXTENSION btree_gist SCHEMA ext")
	for _, service := range product.Names() {
		if err := os.WriteFile(filepath.Join(data, "passwords", service), []byte("by hand\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		g.execute(
			plane,
			"CREATE ROLE plane_"+service+" LOGIN PASSWORD 'by hand'",
			"GRANT plane_"+service+" TO app",
			"CREATE SCHEMA "+service+" AUTHORIZATION plane_"+service,
		)
	}
	r := start(t, environment)
	r.client(r.key()).Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	verify := launch(t, environment, "verify")
	if err := verify.exit(); err != nil {
		t.Errorf("verify: got %v and\n%s\nwant success", err, verify.screen)
	}
	r.stop()
}

// Limits that are less than what it may open are said at the start.
func TestTooFewConnections(t *testing.T) {
	t.Parallel()
	g := newGiven(t)
	environment := map[string]string{"IRONPLANE_DATA": filepath.Join(t.TempDir(), "data"), "DATABASE_URL": g.URL("postgres")}
	r := start(t, environment)
	if strings.Contains(r.screen.String(), "Too few connections") {
		t.Errorf("got\n%s\nwant no warning of too few connections", r.screen)
	}
	r.stop()
	g.execute(g.superuser, "ALTER DATABASE postgres CONNECTION LIMIT 40", "ALTER ROLE postgres_network CONNECTION LIMIT 7")
	r = start(t, environment)
	if want := "may need 46, and the role postgres_network may have 7, and needs 8; the database allows 40"; !strings.Contains(
		r.screen.String(),
		want,
	) {
		t.Errorf("got\n%s\nwant %q in it", r.screen, want)
	}
	r.stop()
}

// A Redis that is away takes nothing away, also at the start.
func TestRedisAwayAtStart(t *testing.T) {
	t.Parallel()
	r := start(t, map[string]string{"IRONPLANE_DATA": filepath.Join(t.TempDir(), "data"), "REDIS_URL": "redis://127.0.0.1:1"})
	r.client(r.key()).Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	if !strings.Contains(r.screen.String(), "Redis does not answer") {
		t.Errorf("got\n%s\nwant a warning that Redis does not answer", r.screen)
	}
	r.stop()
}

// It says beforehand what would keep it from starting, and leaves no trace.
func TestCheck(t *testing.T) {
	t.Parallel()
	g := newGiven(t)
	data := filepath.Join(t.TempDir(), "data")
	environment := map[string]string{"IRONPLANE_DATA": data, "DATABASE_URL": g.URL("postgres")}
	says := func(well bool, parts ...string) {
		t.Helper()
		r := launch(t, environment, "--check")
		err := r.exit()
		for _, part := range parts {
			if well != (err == nil) || !strings.Contains(r.screen.String(), part) {
				t.Errorf("--check: got %v and\n%s\nwant success %t and %q", err, r.screen, well, part)
			}
		}
	}
	says(true, "ok       DATABASE_URL: all is there that services need, or may be made")
	var traces int
	err := g.superuser.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM pg_roles "+
		"WHERE rolname LIKE 'postgres\\_%') + (SELECT count(*) FROM pg_namespace WHERE nspname IN ('ext', 'network'))").
		Scan(&traces)
	if _, made := os.Stat(data); err != nil || traces > 0 || made == nil {
		t.Errorf("got %d roles and schemas (%v) and %v for the data folder, want 0 and no folder", traces, err, made)
	}
	start(t, environment).stop()
	says(true, "sealed with this master key")
	g.execute(g.superuser, "CREATE ROLE app LOGIN PASSWORD 'app'", "CREATE DATABASE plane", "ALTER DATABASE postgres CONNECTION LIMIT 20")
	environment["IRONPLANE_MASTER_KEY"] = seal.NewMasterKey().Reveal()
	environment["REDIS_URL"] = "redis://127.0.0.1:1"
	environment["IRONPLANE_LISTEN"] = "192.0.2.1:80"
	says(
		false,
		"fails    REDIS_URL",
		"fails    IRONPLANE_LISTEN",
		"network: the key is not the one that this installation's secrets are sealed with",
		"warning  DATABASE_URL: there are connections enough: Too few",
		"3 of ",
	)
	environment["DATABASE_URL"] = strings.NewReplacer("/postgres?", "/plane?", "postgres:", "app:x").Replace(g.URL("postgres"))
	says(false, "fails    DATABASE_URL")
	delete(environment, "DATABASE_URL")
	says(false, "ok       PostgreSQL: there is one to start")
}
