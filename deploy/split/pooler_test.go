package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/ports"
	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/devservers/child"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// pooler is PgBouncer in transaction mode in front of the Postgres of an installation.
type pooler struct {
	t       *testing.T
	program string
	config  string // the file of its configuration
	address string
	stop    func()
}

// newPooler starts PgBouncer. Each role has a few sessions of Postgres, whatever its processes open.
func newPooler(t *testing.T, o *operated) *pooler {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		t.Skip("pgbouncer is not installed; Debian's package pgbouncer has it")
	}
	free, err := ports.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(free[0], ":")
	folder, err := os.MkdirTemp("", "ironplane-pgbouncer-") // that of t.TempDir is closed to PgBouncer, which gives up root
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	users := ""
	for _, name := range product.Names() {
		users += fmt.Sprintf("%q %q\n", "ironplane_"+name, o.read("setup", name+"-password"))
	}
	config := fmt.Sprintf(`[databases]
ironplane = host=%s port=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = scram-sha-256
auth_file = %s/users
pool_mode = transaction
default_pool_size = 6
max_client_conn = 500
log_connections = 0
log_disconnections = 0
`, o.postgres.Hostname(), o.postgres.Port(), port, folder)
	p := &pooler{t: t, program: program, config: filepath.Join(folder, "pgbouncer.ini"), address: free[0]}
	for name, text := range map[string]string{"users": users, "pgbouncer.ini": config} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	p.start()
	t.Cleanup(func() { p.stop() })
	return p
}

// start starts PgBouncer, and waits until it listens.
func (p *pooler) start() {
	p.t.Helper()
	arguments := []string{p.config}
	if os.Geteuid() == 0 {
		arguments = []string{"-u", "nobody", p.config}
	}
	cmd := exec.Command(p.program, arguments...)
	cmd.Stderr, cmd.WaitDelay = p.t.Output(), exitTimeout
	process, err := child.Start(cmd, syscall.SIGINT, syscall.SIGKILL)
	if err != nil {
		p.t.Fatal(err)
	}
	p.stop = func() { _ = process.Stop(context.Background()) }
	ctx, cancel := context.WithTimeout(p.t.Context(), readyTimeout)
	defer cancel()
	if err := process.Await(ctx, func() bool { return accepts(p.address) }); err != nil {
		p.t.Fatalf("wait until PgBouncer listens: %v", err)
	}
}

// accepts reports whether something listens at an address.
func accepts(address string) bool {
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

// TestPgBouncer has two of each process reach Postgres through PgBouncer in transaction mode: they migrate, change and list
// items, deliver events, and serve again after it was restarted. A service whose role lacks its settings does not start.
func TestPgBouncer(t *testing.T) {
	o := newOperated(
		t,
		"IRONPLANE_QUERY_EXEC_MODE=cache_describe",
		"IRONPLANE_OWNER_RATE=100000",
		"IRONPLANE_OWNER_BURST=100000",
		"IRONPLANE_OWNER_CONCURRENCY=100000",
	)
	p := newPooler(t, o)
	for _, name := range product.Names() {
		direct, err := url.Parse(o.read(name, "database-url"))
		if err != nil {
			t.Fatal(err)
		}
		pooled := *direct
		pooled.Host = p.address
		if err := os.WriteFile(o.file(name+".database-url"), []byte(pooled.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		o.added[name] = []string{"DATABASE_DIRECT_URL=" + direct.String()}
	}
	if err := o.startServices(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, replicas := startReplicas(t, o.fleet, 2)
	gateways := replicas[principal.Gateway]
	key := strings.TrimSpace(o.setup("admin-key"))
	c := testkit.ClientAt(t, "http://"+gateways[0].address).WithKey(key)

	group := c.Do(http.MethodPost, "/group", `{"name": "Berlin"}`).Want(http.StatusOK).ID()
	c.Do(http.MethodPost, fmt.Sprintf("/group/%d/entity/bulk", group),
		`{"prefix": "10.0.0.0/24", "gateway": "10.0.0.1", "subnet_mask": "255.255.255.0"}`).Want(http.StatusOK)
	front, stop := startCallers(t, gateways, key, fmt.Sprintf("/group/%d", group))
	testkit.Eventually(t, "the log has changes of the network service", func() bool {
		return strings.Contains(c.Do(http.MethodGet, "/log?q=Berlin", nil).Text, "group")
	})
	testkit.Eventually(t, "callers have sent 1,000 requests", func() bool { return front.requested.Load() >= 1000 })
	if n := o.sessions(); n > maxOfServices/2 {
		t.Errorf("got %d connections to Postgres, want those that PgBouncer allows", n)
	}
	front.repeat.Store(true) // while nothing listens, requests are a 503
	p.stop()
	p.start()
	for range 3 {
		testkit.Eventually(t, "changes are made again", func() bool {
			return c.Do(http.MethodPatch, fmt.Sprintf("/group/%d", group), `{"name": "Bern"}`).Status == http.StatusOK
		})
	}
	stop()
	report(t, "PgBouncer restarted", front.requested.Load(), front.failed.Load(), time.Duration(front.outage.Load()), o.sessions())
	if front.failed.Load() > 0 {
		t.Errorf("got %d failed requests, want none", front.failed.Load())
	}
	o.wantRefused(p)
}

// wantRefused takes the settings of a role away, and tests that its service says so and does not start.
func (o *operated) wantRefused(p *pooler) {
	o.t.Helper()
	if _, err := o.superuser.Exec(o.t.Context(), "ALTER ROLE ironplane_network RESET ALL"); err != nil {
		o.t.Fatal(err)
	}
	p.stop() // its sessions have the settings still
	p.start()
	for _, command := range []string{"serve", "check"} {
		cmd := exec.CommandContext(o.t.Context(), filepath.Join(programs, "network"), command)
		cmd.Env = slices.Concat(o.serviceEnvironment("network"), []string{"IRONPLANE_LISTEN=127.0.0.1:0"})
		out, err := cmd.CombinedOutput()
		for _, want := range []string{
			`search_path is "\"$user\", public"`, `statement_timeout is "0"`, `jit is "on"`, "Run setup bootstrap",
			`ALTER ROLE "ironplane_network" SET search_path = "network", ext;`,
		} {
			if err == nil || !strings.Contains(string(out), want) {
				o.t.Errorf("%s without the role's settings: got %v and\n%s\nwant a refusal with %q", command, err, out, want)
			}
		}
	}
	o.setup("bootstrap")
	p.stop()
	p.start()
	o.run(filepath.Join(programs, "network"), o.serviceEnvironment("network"), "migrate")
}
