package product_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/gateway"
	"github.com/ironplane/ironplane/pkg/runtime/process"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

// operated is an installation with its operations listener.
type operated struct {
	*installation
	t          *testing.T
	server     *pgx.Conn // as the administrator, in another database
	database   string
	operations string // their address
}

func newOperated(t *testing.T) *operated {
	t.Helper()
	i := newInstallation(t)
	config, err := pgx.ParseConfig(testkit.AdminURL(t, i.urls[network.Name]).Reveal())
	if err != nil {
		t.Fatal(err)
	}
	o := &operated{installation: i, t: t, database: config.Database}
	config.Database = "postgres"
	if o.server, err = pgx.ConnectConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.server.Close(context.Background()) })
	o.show()
	return o
}

// show connects the running product to the operations listener.
func (o *operated) show() {
	operations := process.NewOperations("test")
	o.product.Show(operations)
	is := testkit.Redis(o.t).Options()
	address := url.URL{Scheme: "redis", Host: is.Addr, User: url.UserPassword(is.Username, is.Password)}
	client, err := operations.OpenRedis(secret.New(address.String()))
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { _ = client.Close() })
	testkit.WaitForRedis(client)
	o.serve(operations)
}

func (o *operated) serve(operations *process.Operations) {
	operations.Started()
	served := httptest.NewServer(operations.Handler())
	o.t.Cleanup(served.Close)
	o.operations = served.URL
}

// sql runs a statement as the administrator, with the database's name for %s.
func (o *operated) sql(statement string) {
	o.t.Helper()
	if _, err := o.server.Exec(context.Background(), fmt.Sprintf(statement, o.database)); err != nil {
		o.t.Fatal(err)
	}
}

const endSessions = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '%s'"

func (o *operated) look(path string) (status int, body string) {
	o.t.Helper()
	response, err := http.Get(o.operations + path)
	if err != nil {
		o.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		o.t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// await waits until /readyz and the metrics show this status of the check.
func (o *operated) await(check, says, status string) {
	o.t.Helper()
	for deadline := time.Now().Add(soon); ; time.Sleep(20 * time.Millisecond) {
		code, text := o.look("/readyz")
		var is struct {
			Status string
			Checks map[string]string
		}
		if err := json.Unmarshal([]byte(text), &is); err != nil {
			o.t.Fatal(err)
		}
		for _, name := range []string{o.database, "test_", "127.0.0.1", "postgres://"} {
			if strings.Contains(text, name) {
				o.t.Fatalf("got %s in /readyz, want it hidden: %s", name, text)
			}
		}
		_, metrics := o.look("/metrics")
		up := fmt.Sprintf("ironplane_check_up{check=%q} %d", check, map[bool]int{true: 1}[is.Checks[check] == "ok"])
		if strings.Contains(is.Checks[check], says) && is.Status == status && (code == http.StatusOK) == (status != "not ready") &&
			strings.Contains(metrics, up) {
			return
		}
		if time.Now().After(deadline) {
			o.t.Fatalf("got %d %s, want %s and %q", code, text, status, says)
		}
	}
}

// refused expects changes to be refused, and reads to succeed.
func (o *operated) refused() {
	o.t.Helper()
	answer := o.admin.Do("POST", "/group", map[string]any{"name": "refused"})
	if answer.Status != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
		o.t.Errorf("got %d %v %s, want %d with Retry-After", answer.Status, answer.Header, answer.Text, http.StatusServiceUnavailable)
	}
	o.admin.Do("GET", "/group", nil).Want(http.StatusOK)
}

// recovers waits until changes succeed again.
func (o *operated) recovers() {
	o.t.Helper()
	for deadline := time.Now().Add(soon); o.admin.Do(
		"POST", "/group", map[string]any{"name": "first"},
	).Status != http.StatusOK; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			o.t.Fatal("got changes refused after the cause is gone, want them accepted")
		}
	}
	var all sync.WaitGroup
	for n := range 20 {
		all.Go(func() {
			if answer := o.admin.Do("POST", "/group", map[string]any{"name": fmt.Sprint(n)}); answer.Status != http.StatusOK {
				o.t.Errorf("got %d %s, want %d", answer.Status, answer.Text, http.StatusOK)
			}
		})
	}
	all.Wait()
}

// awaitHealth waits until the body of the gateway's /-/health begins like this.
func (o *operated) awaitHealth(begin string) {
	o.t.Helper()
	testkit.Eventually(o.t, "/-/health answers "+begin, func() bool {
		return strings.HasPrefix(o.admin.Do("GET", "/-/health", nil).Want(http.StatusOK).Text, begin)
	})
}

func TestReadOnlyDatabase(t *testing.T) {
	t.Parallel()
	o := newOperated(t)
	o.await("network-writable", "ok", "ready")
	o.sql("ALTER DATABASE %s SET default_transaction_read_only = on")
	o.sql(endSessions)
	o.await("network-writable", "the database is read-only", "read-only")
	o.awaitHealth(
		`{"status":"read-only","detail":"These services accept no changes: clients, identity, network, pxe, system. Reads are answered."}`,
	)
	o.refused()
	o.sql("ALTER DATABASE %s RESET default_transaction_read_only")
	o.recovers()
	o.await("network-writable", "ok", "ready")
	o.awaitHealth(`{"status":"ok"}`)
}

func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	o := newOperated(t)
	o.sql("ALTER DATABASE %s ALLOW_CONNECTIONS false")
	o.sql(endSessions)
	o.await("network-postgres", "request failed, see the log", "not ready")
	o.sql("ALTER DATABASE %s ALLOW_CONNECTIONS true")
	o.recovers()
	o.await("network-postgres", "ok", "ready")
}

func TestFullDisk(t *testing.T) {
	t.Parallel()
	folder, err := os.MkdirTemp("", "ironplane-disk-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(folder) })
	if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, "size=80m"); err != nil {
		t.Skipf("a disk that can be filled needs root, to mount it: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(folder, syscall.MNT_DETACH) })
	o := newOperated(t)
	o.stop()
	own(t, folder, o.server)
	o.sql("CREATE TABLESPACE %s_disk LOCATION '" + folder + "'")
	o.sql("ALTER DATABASE %[1]s SET TABLESPACE %[1]s_disk")
	t.Cleanup(func() {
		o.stop()
		o.sql("ALTER DATABASE %s SET TABLESPACE pg_default")
		o.sql("DROP TABLESPACE %s_disk")
	})
	if err := o.start(); err != nil {
		t.Fatal(err)
	}
	o.show()
	o.await("network-writable", "ok", "ready")
	filler := filepath.Join(folder, "filler")
	if _, err := exec.Command("dd", "if=/dev/zero", "of="+filler, "bs=4k").CombinedOutput(); err == nil {
		t.Fatal("got space left on the disk, want it full")
	}
	for n := 0; ; n++ { // until no page that there is has room
		answer := o.admin.Do("POST", "/group", map[string]any{"name": strings.Repeat(fmt.Sprint(n), 20)})
		if answer.Status != http.StatusOK {
			break
		}
	}
	o.await("network-writable", "the database's disk is full", "read-only")
	o.awaitHealth(`{"status":"read-only",`)
	o.refused()
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	o.recovers()
	o.await("network-writable", "ok", "ready")
	o.awaitHealth(`{"status":"ok"}`)
}

// own gives a folder to the user that Postgres runs as.
func own(t *testing.T, folder string, server *pgx.Conn) {
	t.Helper()
	var uid, gid int
	const ask = `SELECT substring(s FROM 'Uid:\s+(\d+)')::int, substring(s FROM 'Gid:\s+(\d+)')::int FROM pg_read_file('/proc/self/status') s`
	if err := server.QueryRow(t.Context(), ask).Scan(&uid, &gid); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(folder, uid, gid); err != nil {
		t.Fatal(err)
	}
}

// A gateway is not ready while none of its services responds, and is ready once one does.
func TestNoServiceAnswers(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	var away sync.Map
	services := map[string]http.Handler{}
	for name, service := range i.product.Services {
		services[name] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, is := away.Load(name); is {
				panic(http.ErrAbortHandler)
			}
			service.ServeHTTP(w, r)
		})
	}
	g := producttest.NewMesh(t, i.product, services, slog.New(slog.DiscardHandler)).Gateway(gateway.Config{}, testkit.Redis(t))
	client := testkit.NewClient(t, g).WithKey(i.key)
	operations := process.NewOperations("gateway")
	operations.Check(g.Checks()...)
	o := &operated{installation: i, t: t, database: "postgres"}
	o.serve(operations)
	o.await("network", "ok", "ready")
	away.Store(network.Name, true)
	o.await("network", "the service is unavailable", "degraded")
	for name := range services {
		away.Store(name, true)
	}
	o.await("services", "no service responds", "not ready")
	answer := client.Do("GET", "/group", nil)
	if answer.Status != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
		t.Errorf("got %d %v %s, want %d with Retry-After", answer.Status, answer.Header, answer.Text, http.StatusServiceUnavailable)
	}
	away.Clear()
	o.await("services", "ok", "ready")
}
