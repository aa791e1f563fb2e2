package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/devservers"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// operated is an installation as docs/operate/install.md makes it, on a Postgres with default settings.
type operated struct {
	*fleet
	t         *testing.T
	postgres  *url.URL // as the superuser
	secrets   string   // the folder of all secrets
	superuser *pgx.Conn
}

const (
	// defaultConnections is max_connections of a Postgres with default settings.
	defaultConnections = 100
	// maxOfServices is how many of them all instances of all services may use together.
	maxOfServices = 90
)

// newOperated starts Postgres and Redis, creates secrets, roles and schemas with setup, and prepares a fleet.
func newOperated(t *testing.T, environment ...string) *operated {
	t.Helper()
	folder := t.TempDir()
	postgres, err := devservers.StartPostgres(
		t.Context(),
		devservers.PostgresOptions{Dir: filepath.Join(folder, "postgres"), MaxConnections: defaultConnections},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := postgres.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	redis, err := devservers.StartRedis(t.Context(), devservers.RedisOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := redis.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	o := &operated{t: t, secrets: filepath.Join(folder, "secrets")}
	if o.postgres, err = url.Parse(postgres.URL("postgres")); err != nil {
		t.Fatal(err)
	}
	if o.superuser, err = pgx.Connect(t.Context(), o.postgres.String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.superuser.Close(context.WithoutCancel(t.Context())) })
	o.setup("secrets")
	for statement := range strings.SplitSeq(strings.TrimSpace(o.setup("sql")), ";\n") {
		if _, err := o.superuser.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	o.setup("bootstrap")
	databases := map[string]secret.String{}
	for _, name := range product.Names() {
		databases[name] = secret.New(o.read(name, "database-url"))
	}
	masterKey := secret.New(o.read("setup", "master-key"))
	if o.fleet, err = newFleet(t.TempDir(), programs, environment, databases, masterKey, secret.New(redis.URL())); err != nil {
		t.Fatal(err)
	}
	return o
}

// read returns a secret.
func (o *operated) read(folder, name string) string {
	o.t.Helper()
	text, err := os.ReadFile(filepath.Join(o.secrets, folder, name))
	if err != nil {
		o.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// setup runs a command of the program setup, and returns its output.
func (o *operated) setup(command string) string {
	o.t.Helper()
	return o.run(
		filepath.Join(programs, "setup"),
		[]string{"IRONPLANE_SECRETS=" + o.secrets, "IRONPLANE_POSTGRES=" + o.postgresHost()},
		command,
	)
}

func (o *operated) postgresHost() string { return o.postgres.Host }

// run runs a program with variables, and returns its output.
func (o *operated) run(program string, environment []string, arguments ...string) string {
	o.t.Helper()
	cmd := exec.CommandContext(o.t.Context(), program, arguments...)
	cmd.Env, cmd.WaitDelay = append([]string{"PATH=" + os.Getenv("PATH")}, environment...), exitTimeout
	out, err := cmd.CombinedOutput()
	if err != nil {
		o.t.Fatalf("%s %v: got %v and\n%s\nwant success", filepath.Base(program), arguments, err, out)
	}
	return string(out)
}

// sessions returns how many connections the services' roles have.
func (o *operated) sessions() (n int) {
	o.t.Helper()
	err := o.superuser.QueryRow(o.t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE usename LIKE 'ironplane\\_%'").Scan(&n)
	if err != nil {
		o.t.Fatal(err)
	}
	return n
}

// lists are a table of each service that nothing but a list reads, and the list's path.
var lists = map[string]struct{ table, path string }{
	"clients":  {"clients.client", "/client"},
	"identity": {"identity.openid_provider", "/auth/provider"},
	"network":  {"network.port_speed", "/port-speed"},
	"pxe":      {"pxe.driver", "/pxe/driver"},
	"system":   {"system.webhook", "/webhook"},
}

// TestThreeOfEach has three instances of each service use all connections that they may have, on a Postgres with default
// settings. Callers that find none get a 503 soon. Commands get in. Afterwards the connections are closed.
func TestThreeOfEach(t *testing.T) {
	pgDump, err := exec.LookPath("pg_dump")
	if err != nil {
		t.Skip("pg_dump is not installed; Debian's package postgresql-client has it")
	}
	o := newOperated(t, "IRONPLANE_OWNER_RATE=100000", "IRONPLANE_OWNER_BURST=100000", "IRONPLANE_OWNER_CONCURRENCY=100000")
	if err := o.startServices(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, replicas := startReplicas(t, o.fleet, 3)
	key := strings.TrimSpace(o.setup("admin-key"))
	gateways := replicas[principal.Gateway]
	c := testkit.ClientAt(t, "http://"+gateways[0].address).WithKey(key)
	for _, list := range lists {
		c.Do(http.MethodGet, list.path, nil).Want(http.StatusOK)
	}

	locks, err := pgx.Connect(t.Context(), strings.Replace(o.postgres.String(), "/postgres?", "/ironplane?", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(context.WithoutCancel(t.Context()))
	for _, sql := range []string{"BEGIN", "LOCK TABLE " + tables() + " IN ACCESS EXCLUSIVE MODE"} {
		if _, err := locks.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	answers, stop := callAll(t, gateways, key)
	maxSessions := 0
	testkit.Eventually(t, "the services use all connections of their pools", func() bool {
		maxSessions = max(maxSessions, o.sessions())
		return maxSessions >= 75
	})

	o.setup("admin-key")
	for _, name := range product.Names() {
		o.run(filepath.Join(programs, name), o.serviceEnvironment(name), "migrate")
	}
	o.run(filepath.Join(programs, "system"), o.serviceEnvironment("system"), "verify")
	administrator := url.URL{Scheme: "postgres", User: url.UserPassword("ironplane", o.read("setup", "postgres-password")),
		Host: o.postgres.Host, Path: "/ironplane"}
	o.run(pgDump, nil, "--file", os.DevNull, "--table", "system.log", administrator.String()) // others wait for the locks

	testkit.Eventually(t, "callers got a 503", func() bool {
		maxSessions = max(maxSessions, o.sessions())
		return answers.refused.Load() > 0
	})
	if maxSessions > maxOfServices {
		t.Errorf("got up to %d connections of the services, want at most %d", maxSessions, maxOfServices)
	}
	if _, err := locks.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	stop()
	for _, list := range lists {
		testkit.Eventually(t, list.path+" is served again", func() bool {
			return c.Do(http.MethodGet, list.path, nil).Status == http.StatusOK
		})
	}
	const idle = 40 // of 75
	testkit.Eventually(t, "idle connections are closed", func() bool { return o.sessions() <= idle })
	t.Logf("%d connections at rest", o.sessions())
	report(t, "three of each, all connections in use", answers.all.Load(), answers.refused.Load(), 0, maxSessions)
}

// report prints a line of the table that make operate prints: what happened, requests, those of them that failed or were told
// to try again, the longest time that a caller tried for, and the connections to Postgres.
func report(t *testing.T, event string, requests, failed int64, outage time.Duration, connections int) {
	t.Helper()
	t.Logf("| %s | %d | %d | %v | %d |", event, requests, failed, outage.Round(10*time.Millisecond), connections)
}

// tables returns the tables of lists, for a statement.
func tables() string {
	var all []string
	for _, list := range lists {
		all = append(all, list.table)
	}
	return strings.Join(all, ", ")
}

// answers counts the answers of callers.
type answers struct{ all, refused atomic.Int64 }

// callAll requests all lists, each from more callers than there are connections, until stop is called. It fails the test for
// an answer that is neither the list nor a 503 with a time to try again.
func callAll(t *testing.T, gateways []*replica, key string) (counted *answers, stop func()) {
	t.Helper()
	const callers = 30
	ctx, cancel := context.WithCancel(t.Context())
	counted = &answers{}
	client := &http.Client{Timeout: waitTimeout}
	var calling sync.WaitGroup
	for _, list := range lists {
		for n := range callers {
			calling.Go(func() {
				for ctx.Err() == nil {
					status, err := get(client, "http://"+gateways[n%len(gateways)].address+list.path, key)
					counted.all.Add(1)
					if status == http.StatusServiceUnavailable {
						counted.refused.Add(1)
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	return counted, func() {
		cancel()
		calling.Wait()
	}
}

// get requests a list. It returns an error for any answer but a 200, and a 503 with Retry-After.
func get(client *http.Client, to, key string) (status int, err error) {
	r, err := http.NewRequest(http.MethodGet, to, nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+key)
	response, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	switch {
	case response.StatusCode == http.StatusOK:
	case response.StatusCode == http.StatusServiceUnavailable && response.Header.Get("Retry-After") != "":
	default:
		return response.StatusCode, fmt.Errorf("GET %s: got %d, Retry-After %q and %s, want 200, or 503 with Retry-After",
			to, response.StatusCode, response.Header.Get("Retry-After"), body)
	}
	return response.StatusCode, nil
}
