package main

import (
	"context"
	"fmt"
	"maps"
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

// existingPostgres is a PostgreSQL server that the test starts, and standalone uses by DATABASE_URL.
type existingPostgres struct {
	*testing.T
	*devservers.Postgres
	superuser *pgx.Conn
}

func startExistingPostgres(t *testing.T) *existingPostgres {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
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
	g := &existingPostgres{T: t, Postgres: postgres}
	g.superuser = g.connect("postgres")
	return g
}

func (g *existingPostgres) connect(database string) *pgx.Conn {
	g.Helper()
	conn, err := pgx.Connect(g.Context(), g.URL(database))
	if err != nil {
		g.Fatal(err)
	}
	g.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (g *existingPostgres) execute(conn *pgx.Conn, statements ...string) {
	g.Helper()
	for _, statement := range statements {
		if _, err := conn.Exec(g.Context(), statement); err != nil {
			g.Fatalf("%s: %v", statement, err)
		}
	}
}

// claimHolder waits until a standalone has claimed the database, and returns the process id of its connection.
func (g *existingPostgres) claimHolder() (pid int64) {
	g.Helper()
	for deadline := time.Now().Add(testTimeout); pid == 0; time.Sleep(20 * time.Millisecond) {
		err := g.superuser.QueryRow(g.Context(), "SELECT coalesce((SELECT pid FROM pg_locks "+
			"WHERE relation = to_regclass('ext.standalone') AND mode = 'ExclusiveLock' AND granted), 0)").
			Scan(&pid)
		if err != nil || time.Now().After(deadline) {
			g.Fatalf("got no claim on the database (%v), want one", err)
		}
	}
	return pid
}

// TestClaimIsRenewed cuts all connections, as a restart of PostgreSQL does. Standalone claims the database again, and a second
// standalone is refused. If another process gets the claim first, standalone exits.
func TestClaimIsRenewed(t *testing.T) {
	t.Parallel()
	g := startExistingPostgres(t)
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
	before := g.claimHolder()
	g.execute(g.superuser, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'postgres' AND pid <> pg_backend_pid()")
	testkit.Eventually(t, "the claim is lost", func() bool { return g.claimHolder() != before })
	second := launch(t, environment)
	if err := second.exit(); err == nil || !strings.Contains(second.screen.String(), "another standalone runs on this database") {
		t.Fatalf("a second start: got %v and\n%s\nwant a refusal, as another standalone runs on this database", err, second.screen)
	}
	created := c.Do("POST", "/group", `{"name": "Berlin"}`)
	for deadline := time.Now().Add(testTimeout); created.Status == http.StatusServiceUnavailable && time.Now().Before(deadline); time.Sleep(
		100 * time.Millisecond,
	) {
		created = c.Do("POST", "/group", `{"name": "Berlin"}`) // services retry a lost connection after a second
	}
	created.Want(200)

	// A connection that already waits for the lock gets it before a new one.
	other := g.connect("postgres")
	g.execute(other, "BEGIN")
	locked := make(chan error, 1)
	go func() {
		_, err := other.Exec(t.Context(), "LOCK TABLE ext.standalone IN EXCLUSIVE MODE")
		locked <- err
	}()
	for isWaiting := false; !isWaiting; time.Sleep(time.Millisecond) {
		if err := g.superuser.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_locks "+
			"WHERE relation = 'ext.standalone'::regclass AND NOT granted)").
			Scan(&isWaiting); err != nil {
			t.Fatal(err)
		}
	}
	g.execute(g.superuser, fmt.Sprintf("SELECT pg_terminate_backend(%d)", g.claimHolder()))
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	if err := r.exit(); err == nil || !strings.Contains(r.screen.String(), "another standalone runs on this database") {
		t.Fatalf("got %v and\n%s\nwant an exit, as another standalone runs on this database", err, r.screen)
	}
}

// TestPasswordsOfRolesStay shows that a start keeps the passwords of roles that work, and sets those that do not.
func TestPasswordsOfRolesStay(t *testing.T) {
	t.Parallel()
	g := startExistingPostgres(t)
	environment := map[string]string{"IRONPLANE_DATA": filepath.Join(t.TempDir(), "data"), "DATABASE_URL": g.URL("postgres")}
	start(t, environment).stop()
	first := g.passwordHashes()
	start(t, environment).stop()
	if second := g.passwordHashes(); !maps.Equal(first, second) {
		t.Errorf("got the hashes %v after a second start, want %v", second, first)
	}
	g.execute(g.superuser, "ALTER ROLE postgres_network PASSWORD 'forgotten'")
	forgotten := g.passwordHashes()
	start(t, environment).stop()
	for role, hash := range g.passwordHashes() {
		if isSet := hash != forgotten[role]; isSet != (role == "postgres_network") {
			t.Errorf("%s: got a new password %t, want %t", role, isSet, !isSet)
		}
	}
}

// passwordHashes returns the hashes of the services' passwords by role.
func (g *existingPostgres) passwordHashes() map[string]string {
	g.Helper()
	rows, err := g.superuser.Query(g.Context(), "SELECT rolname, rolpassword FROM pg_authid WHERE rolname LIKE 'postgres\\_%'")
	testkit.Must(g, err)
	hashes := map[string]string{}
	var role, hash string
	_, err = pgx.ForEachRow(rows, []any{&role, &hash}, func() error { hashes[role] = hash; return nil })
	testkit.Must(g, err)
	if len(hashes) != len(product.Names()) {
		g.Fatalf("got the roles %v, want one for each of %v", hashes, product.Names())
	}
	return hashes
}

// TestRolesByHand starts with a role that may create no roles and does not own the database. The error lists the missing
// statements. Standalone starts once they are run by hand.
func TestRolesByHand(t *testing.T) {
	t.Parallel()
	g := startExistingPostgres(t)
	g.execute(g.superuser, "CREATE ROLE app LOGIN PASSWORD 'app'", "CREATE DATABASE plane")
	plane := g.connect("plane")
	config := plane.Config()
	url := fmt.Sprintf("postgres://app:app@%s:%d/plane", config.Host, config.Port)
	if strings.HasPrefix(config.Host, "/") {
		url = fmt.Sprintf("postgres://app:app@/plane?host=%s&port=%d", config.Host, config.Port)
	}
	data := filepath.Join(t.TempDir(), "data")
	environment := map[string]string{"IRONPLANE_DATA": data, "DATABASE_URL": url}
	expectMissing := func(statements ...string) {
		t.Helper()
		r := launch(t, environment)
		err := r.exit()
		for _, statement := range statements {
			if err == nil || !strings.Contains(r.screen.String(), statement) {
				t.Errorf("got %v and\n%s\nwant an error and %q", err, r.screen, statement)
			}
		}
	}
	expectMissing(`CREATE SCHEMA ext AUTHORIZATION "app";`)
	g.execute(plane, "CREATE SCHEMA ext AUTHORIZATION app")
	expectMissing(
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

// TestTooFewConnections shows the warning at the start when the limits are below the connections that standalone may open.
func TestTooFewConnections(t *testing.T) {
	t.Parallel()
	g := startExistingPostgres(t)
	environment := map[string]string{"IRONPLANE_DATA": filepath.Join(t.TempDir(), "data"), "DATABASE_URL": g.URL("postgres")}
	r := start(t, environment)
	if strings.Contains(r.screen.String(), "too few connections") {
		t.Errorf("got\n%s\nwant no warning of too few connections", r.screen)
	}
	r.stop()
	g.execute(g.superuser, "ALTER DATABASE postgres CONNECTION LIMIT 40", "ALTER ROLE postgres_network CONNECTION LIMIT 7")
	r = start(t, environment)
	if want := "may open 46, but the role postgres_network allows 7 of the 8 that it needs; the database allows 40"; !strings.Contains(
		r.screen.String(),
		want,
	) {
		t.Errorf("got\n%s\nwant %q in it", r.screen, want)
	}
	r.stop()
}

// TestRedisAwayAtStart shows that standalone starts and works without its Redis.
func TestRedisAwayAtStart(t *testing.T) {
	t.Parallel()
	r := start(t, map[string]string{"IRONPLANE_DATA": filepath.Join(t.TempDir(), "data"), "REDIS_URL": "redis://127.0.0.1:1"})
	r.client(r.key()).Do("POST", "/group", `{"name": "Berlin"}`).Want(200)
	if !strings.Contains(r.screen.String(), "redis unavailable") {
		t.Errorf("got\n%s\nwant a warning that Redis is unavailable", r.screen)
	}
	r.stop()
}

// TestCheck shows that --check reports what would prevent a start, and changes nothing.
func TestCheck(t *testing.T) {
	t.Parallel()
	g := startExistingPostgres(t)
	data := filepath.Join(t.TempDir(), "data")
	environment := map[string]string{"IRONPLANE_DATA": data, "DATABASE_URL": g.URL("postgres")}
	check := func(ok bool, parts ...string) {
		t.Helper()
		r := launch(t, environment, "--check")
		err := r.exit()
		for _, part := range parts {
			if ok != (err == nil) || !strings.Contains(r.screen.String(), part) {
				t.Errorf("--check: got %v and\n%s\nwant success %t and %q", err, r.screen, ok, part)
			}
		}
	}
	check(true, "ok       DATABASE_URL: roles and schemas exist, or can be created")
	var leftovers int
	err := g.superuser.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM pg_roles "+
		"WHERE rolname LIKE 'postgres\\_%') + (SELECT count(*) FROM pg_namespace WHERE nspname IN ('ext', 'network'))").
		Scan(&leftovers)
	if _, statErr := os.Stat(data); err != nil || leftovers > 0 || statErr == nil {
		t.Errorf("got %d roles and schemas (%v) and %v for the data folder, want 0 and no folder", leftovers, err, statErr)
	}
	start(t, environment).stop()
	check(true, "sealed with this master key")
	g.execute(g.superuser, "CREATE ROLE app LOGIN PASSWORD 'app'", "CREATE DATABASE plane", "ALTER DATABASE postgres CONNECTION LIMIT 20")
	environment["IRONPLANE_MASTER_KEY"] = seal.NewMasterKey().Reveal()
	environment["REDIS_URL"] = "redis://127.0.0.1:1"
	environment["IRONPLANE_LISTEN"] = "192.0.2.1:80"
	check(
		false,
		"fails    REDIS_URL",
		"fails    IRONPLANE_LISTEN",
		"network: the key does not match this installation's sealed secrets",
		"warning  DATABASE_URL: there are enough connections: The database allows too few",
		"3 of ",
	)
	environment["DATABASE_URL"] = strings.NewReplacer("/postgres?", "/plane?", "postgres:", "app:x").Replace(g.URL("postgres"))
	check(false, "fails    DATABASE_URL")
	delete(environment, "DATABASE_URL")
	check(false, "ok       PostgreSQL: its programs are installed")
}
