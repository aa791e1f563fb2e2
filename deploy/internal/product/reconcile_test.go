package product_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/gateway"
	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/admin"
	"github.com/ironplane/ironplane/services/network"
	"github.com/ironplane/ironplane/services/pxe"
	"github.com/ironplane/ironplane/services/system"
)

// installation is a product that a test stops and starts again on its database.
type installation struct {
	testing.TB
	urls      map[string]secret.String
	masterKey secret.String
	redis     *cache.Client
	product   *product.Product
	admin     *testkit.Client
	key       string
	takeBack  product.Answer
}

func newInstallation(t testing.TB) *installation {
	i := newDatabases(t)
	i.begin()
	return i
}

// newDatabases returns an installation that was not started yet.
func newDatabases(t testing.TB) *installation {
	services := make([]testkit.Service, len(product.Services))
	for n, s := range product.Services {
		services[n] = testkit.Service{Name: s.Name, Migrations: s.Migrations}
	}
	i := &installation{TB: t, urls: testkit.Databases(t, services...), masterKey: seal.NewMasterKey(), redis: testkit.Redis(t)}
	t.Cleanup(func() { i.stop() })
	return i
}

// begin starts the installation for the first time.
func (i *installation) begin() {
	i.Helper()
	if err := i.start(); err != nil {
		i.Fatal(err)
	}
	i.welcome()
}

// welcome creates the first admin.
func (i *installation) welcome() {
	i.Helper()
	key, _, err := admin.CreateFirst(i.Context(), i.product.Databases[identity.Name])
	if err != nil {
		i.Fatal(err)
	}
	i.key = key.Reveal()
	i.admin = testkit.NewClient(i, i.product.Gateway).WithKey(i.key)
}

func (i *installation) start() (err error) {
	i.product, err = product.Open(
		i.Context(),
		i.urls,
		i.masterKey,
		service.Settings{Tuning: testkit.Tune(service.Tuning{PollInterval: time.Second})}, // services learn of a restore only by polling
		producttest.Unlimited,
		i.redis,
		gateway.Config{},
		producttest.Log(i),
	)
	if err == nil {
		i.admin = testkit.NewClient(i, i.product.Gateway).WithKey(i.key)
	}
	return err
}

func (i *installation) stop() {
	if i.product != nil {
		i.product.Close()
	}
	i.product = nil
}

func (i *installation) restart() {
	i.Helper()
	i.stop()
	if err := i.start(); err != nil {
		i.Fatal(err)
	}
}

// run runs one of Postgres' programs on the installation's database.
func (i *installation) run(input []byte, name string, args ...string) []byte {
	i.Helper()
	if _, err := exec.LookPath(name); err != nil {
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
		if len(found) == 0 {
			i.Skipf("%s is not installed; Debian's package postgresql-client has it", name)
		}
		name = found[len(found)-1]
	}
	database, err := pgx.ParseConfig(testkit.AdminURL(i, i.urls[network.Name]).Reveal())
	if err != nil {
		i.Fatal(err)
	}
	cmd := exec.CommandContext(i.Context(), name, args...)
	cmd.Env = append(os.Environ(), "PGHOST="+database.Host, fmt.Sprint("PGPORT=", database.Port), "PGDATABASE="+database.Database,
		"PGUSER="+database.User, "PGPASSWORD="+database.Password)
	cmd.Stdin = bytes.NewReader(input)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		i.Fatalf("%s: %v\n%s", filepath.Base(name), err, &complaints)
	}
	return out
}

func (i *installation) dump(schema string) []byte {
	i.Helper()
	return i.run(nil, "pg_dump", "--schema", schema)
}

func (i *installation) restore(schema string, dump []byte) {
	i.Helper()
	// Where the product runs, its sessions are those that find a deadlock, and give up.
	i.run(
		append([]byte("SET deadlock_timeout = '10min';\nDROP SCHEMA "+schema+" CASCADE;\n"), dump...),
		"psql",
		"-q",
		"-1",
		"-v",
		"ON_ERROR_STOP=1",
	)
}

func (i *installation) reconcile() string {
	i.Helper()
	var screen strings.Builder
	if err := product.Reconcile(i.Context(), i.urls, product.ReconcileConfig{TakeBack: i.takeBack}, &screen); err != nil {
		i.Fatal(err)
	}
	return screen.String()
}

func (i *installation) verify() string {
	i.Helper()
	box, err := system.Definition.NewBox(i.masterKey)
	if err != nil {
		i.Fatal(err)
	}
	var screen strings.Builder
	if err := system.Verify(i.Context(), service.Deps{DB: i.product.Databases[system.Name], Box: box}, &screen); err != nil {
		i.Error(err)
	}
	return screen.String()
}

func (i *installation) makeGroup(name string, dhcp int64) int64 {
	i.Helper()
	body := map[string]any{"name": name}
	if dhcp > 0 {
		body["pxe_dhcp_server"] = dhcp
	}
	return i.admin.Do(http.MethodPost, "/group", testkit.JSON(body)).Want(http.StatusOK).ID()
}

// dumpBetween creates a group, dumps a schema, and creates another group. All changes are logged.
func (i *installation) dumpBetween(schema, before, after string) (dump []byte) {
	i.Helper()
	i.makeGroup(before, 0)
	producttest.AwaitLog(i, i.product)
	dump = i.dump(schema)
	i.makeGroup(after, 0)
	producttest.AwaitLog(i, i.product)
	return dump
}

// A schema that is restored alone serves nothing until it is reconciled. After that, no id and no number is used twice, and
// the log continues, names the lost changes, and verifies.
func TestRestoredSchema(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	i.makeGroup("before", 0)
	producttest.AwaitLog(t, i.product)
	dump := i.dump(network.Name)
	last := int64(0)
	for n := range 5 {
		last = i.makeGroup(fmt.Sprintf("lost %d", n), 0)
	}
	producttest.AwaitLog(t, i.product)
	i.stop()
	i.restore(network.Name, dump)
	if err := i.start(); !errors.Is(err, events.ErrRestored) {
		t.Fatalf("got %v, want %v", err, events.ErrRestored)
	}
	output := i.reconcile()
	for _, want := range []string{
		"network is reconciled: it has its changes up to 1,", "Lost changes that the log has: 5", "IP group lost 4 was created.",
	} {
		if !strings.Contains(output, want) {
			t.Errorf("got %s, want %q in it", output, want)
		}
	}
	i.restart()
	if created := i.makeGroup("after", 0); created <= last+1 {
		t.Errorf("got the id %d, want one above %d", created, last+1)
	}
	producttest.AwaitLog(t, i.product)
	if output := i.verify(); !strings.Contains(output, "It lost the logged changes 2 to 6.") {
		t.Errorf("got %s, want changes 2 to 6 of network lost", output)
	}
	if n := i.count(network.Name, "ip_group WHERE name IN ('before', 'after')"); n != 2 || i.count(network.Name, "ip_group") != 2 {
		t.Errorf("got %d groups called before and after, want these 2 alone", n)
	}
	if n := i.count(system.Name, "log WHERE description = 'IP group after was created.'"); n != 1 {
		t.Errorf("got %d log items of the group after, want 1", n)
	}
	if err := product.Reconcile(t.Context(), i.urls, product.ReconcileConfig{}, &strings.Builder{}); err == nil {
		t.Error("got network reconciled twice, want an error")
	}
}

// The same backup is restored twice. The log, which is older than both restores, and the reader of pxe, which saw the first
// restore, continue.
func TestRestoredTwice(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	dump := i.dumpBetween(network.Name, "before", "lost")
	log := i.dump(system.Name)
	for _, lost := range []string{"first", "second"} {
		i.stop()
		i.restore(network.Name, dump)
		if lost == "second" {
			i.restore(system.Name, log) // of the first history again
		}
		i.reconcile()
		i.restart()
		i.makeGroup(lost, 0)
		producttest.AwaitConsumers(t, i.product)
		i.verify()
	}
}

// References follow a restored owner. Names are the owner's, no reference to a lost item stays, and an item that the restore
// brought back can be referred to.
func TestReferencesToRestored(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	server := func(name string) int64 {
		return i.admin.Do(
			http.MethodPost, "/pxe/dhcp",
			testkit.JSON(map[string]any{"name": name, "http": map[string]any{"host": "192.0.2.1", "port": 8080, "api_key": "of-the-agent"}}),
		).
			Want(http.StatusOK).
			ID()
	}
	renamed, deleted := server("first name"), server("deleted after the backup")
	group := i.makeGroup("of renamed", renamed)
	producttest.AwaitLog(t, i.product)
	dump := i.dump(pxe.Name)
	i.admin.Do(http.MethodPatch, fmt.Sprintf("/pxe/dhcp/%d", renamed), `{"name": "second name"}`).Want(http.StatusOK)
	i.admin.Do(http.MethodDelete, fmt.Sprintf("/pxe/dhcp/%d", deleted), nil).Want(http.StatusOK)
	lost := server("made after the backup")
	other := i.makeGroup("of lost", lost)
	producttest.AwaitLog(t, i.product)
	i.stop()
	i.restore(pxe.Name, dump)
	i.reconcile()
	i.restart()
	refers := func(group int64) string {
		got := testkit.Decode[network.IPGroup](i.admin.Do(http.MethodGet, fmt.Sprintf("/group/%d", group), nil).Want(http.StatusOK))
		if got.DHCPServer == nil {
			return ""
		}
		return fmt.Sprintf("%d %s", got.DHCPServer.ID, got.DHCPServer.Name)
	}
	testkit.Eventually(t, "the groups name what there is", func() bool {
		return refers(other) == "" && refers(group) == fmt.Sprintf("%d first name", renamed)
	})
	i.makeGroup("of one that is back", deleted)
	if created := server("new"); created <= lost {
		t.Errorf("got the id %d, want one above %d", created, lost)
	}
	producttest.AwaitLog(t, i.product)
	i.verify()
}

// A restored log gets the changes again that the services still have, and continues.
func TestRestoredLog(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	dump := i.dumpBetween(system.Name, "before", "after")
	i.stop()
	i.restore(system.Name, dump)
	i.reconcile()
	i.restart()
	producttest.AwaitLog(t, i.product)
	i.verify()
	if n := i.count(system.Name, "log WHERE description = 'IP group after was created.'"); n != 1 {
		t.Errorf("got %d log items of the group after, want 1", n)
	}
}

func (i *installation) count(schema, from string) (n int) {
	i.Helper()
	if err := i.product.Databases[schema].QueryRow(i.Context(), "SELECT count(*) FROM "+from).Scan(&n); err != nil {
		i.Fatal(err)
	}
	return n
}

// If a schema is restored while its service runs, the service stops serving.
func TestRestoredBelowARunningService(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	i.makeGroup("before", 0)
	producttest.AwaitLog(t, i.product)
	i.restore(network.Name, i.dump(network.Name))
	testkit.Eventually(
		t,
		"the service stops serving",
		func() bool { return i.admin.Do(http.MethodGet, "/group", nil).Status == http.StatusServiceUnavailable },
	)
}

// The start fails with another installation's master key, before anything is sealed with it.
func TestAnotherMasterKey(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	i.stop()
	original := i.masterKey
	i.masterKey = seal.NewMasterKey()
	if err := i.start(); err == nil ||
		!strings.Contains(err.Error(), "the key does not match this installation's sealed secrets") {
		t.Errorf("got %v, want an error about another key", err)
	}
	i.masterKey = secret.New(seal.NewMasterKey().Reveal() + "," + original.Reveal())
	i.restart()
	i.masterKey = original // new secrets are sealed with the new key
	i.stop()
	if err := i.start(); err == nil || !strings.Contains(err.Error(), "the key does not match this installation's sealed secrets") {
		t.Errorf("start without the new key: got %v, want an error about another key", err)
	}
}

// emptySchema replaces a schema with an empty one.
func (i *installation) emptySchema(schema string) {
	i.Helper()
	i.run([]byte(`SELECT nspowner::regrole::text AS owner FROM pg_namespace WHERE nspname = '`+schema+`' \gset
		DROP SCHEMA `+schema+` CASCADE;
		CREATE SCHEMA `+schema+` AUTHORIZATION :owner;`), "psql", "-q", "-v", "ON_ERROR_STOP=1")
}

// An empty schema serves nothing until it is reconciled, if other schemas have applied changes of the lost one.
func TestLostSchema(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	last := i.makeGroup("lost", 0)
	producttest.AwaitLog(t, i.product)
	i.stop()
	i.emptySchema(network.Name)
	mark := func() {
		if err := product.MarkLostSchemas(t.Context(), testkit.AdminURL(t, i.urls[network.Name])); err != nil {
			t.Fatal(err)
		}
	}
	mark()
	mark()
	if err := i.start(); !errors.Is(err, events.ErrRestored) {
		t.Fatalf("got %v, want %v", err, events.ErrRestored)
	}
	if output := i.reconcile(); strings.Contains(output, "pxe is reconciled") ||
		!strings.Contains(output, "network is reconciled: it has its changes up to 0,") {
		t.Errorf("got %s, want network reconciled with its changes up to 0 and pxe not", output)
	}
	mark()
	i.restart()
	if created := i.makeGroup("after", 0); created <= last {
		t.Errorf("got the id %d, want one above %d", created, last)
	}
	producttest.AwaitLog(t, i.product)
	i.verify()
}

// If no program has marked an empty schema, its service learns of the loss from services that have applied its changes, and
// stops serving.
func TestLostSchemaIsFoundOut(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	i.makeGroup("lost", 0)
	producttest.AwaitLog(t, i.product)
	i.stop()
	i.emptySchema(network.Name)
	i.restart()
	testkit.Eventually(
		t,
		"the service stops serving",
		func() bool { return i.admin.Do(http.MethodGet, "/group", nil).Status == http.StatusServiceUnavailable },
	)
	i.stop()
	if err := i.start(); !errors.Is(err, events.ErrRestored) {
		t.Fatalf("got %v, want %v", err, events.ErrRestored)
	}
	i.reconcile()
	i.restart()
	i.makeGroup("after", 0)
	producttest.AwaitLog(t, i.product)
	i.verify()
}

// An id that only other services' changes know is not used again.
func TestForeignIDs(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	producttest.AwaitLog(t, i.product)
	dump, log := i.dump(identity.Name), i.dump(system.Name)
	i.run(
		[]byte(
			`INSERT INTO network.change (type, targets, actor_url, actor_name, actor_key) VALUES ('group.edited', '[{"type": "group", "id": 1}]', '/admin/3000000', 'lost', 4000000)`,
		),
		"psql",
		"-q",
		"-v",
		"ON_ERROR_STOP=1",
	)
	i.stop()
	i.restore(identity.Name, dump)
	i.restore(system.Name, log)
	i.reconcile()
	i.restart()
	if created := i.admin.Do(http.MethodPost, "/auth/key", `{"name": "after"}`).Want(http.StatusOK).ID(); created <= 5_000_000 {
		t.Errorf("got the key %d, want one above 5000000", created)
	}
}

// Temporary data of the backup has no effect after a restore. A stored response is not sent, a message is not sent again,
// and a job does not run again. The mail of such a job has failed, and an operator can send it again.
func TestRestoredSchemaForgets(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	repeat := func() *testkit.Response {
		return i.admin.Do(http.MethodPost, "/group", `{"name": "again"}`, "Idempotency-Key", "one")
	}
	repeat().Want(http.StatusOK)
	repeat().Want(http.StatusOK)
	producttest.AwaitLog(t, i.product)
	i.stop()
	i.run([]byte(`INSERT INTO network.message (receiver, kind, content) VALUES ('system', 'mail', '{}');
		INSERT INTO network.river_job (kind, args, max_attempts) VALUES ('mail', '{}', 25);
		INSERT INTO network.closing (type, id, agreed, until) VALUES ('group', 1, true, now() + interval '1 hour');
		INSERT INTO system.email_message (template, account, to_name, to_email, secret, status) VALUES ('welcome', '/client/1', 'Ben', 'ben@example.com', false, 'queued')`), "psql", "-q", "-v", "ON_ERROR_STOP=1")
	for _, name := range []string{network.Name, system.Name} {
		i.restore(name, i.dump(name))
	}
	i.reconcile()
	i.restart()
	repeat().Want(http.StatusUnprocessableEntity) // the repeated request is not answered from the store, so the name is in use
	if n := i.count(network.Name, "message") + i.count(network.Name, "closing"); n != 0 {
		t.Errorf("got %d messages and deletion leases, want none", n)
	}
	if n := i.count(network.Name, "river_job WHERE state = 'cancelled'"); n != 1 {
		t.Errorf("got %d cancelled jobs, want 1", n)
	}
	if n := i.count(system.Name, "email_message WHERE status = 'failed'"); n != 1 {
		t.Errorf("got %d failed mails, want 1", n)
	}
}
