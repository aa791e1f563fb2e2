package main

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/deploy/internal/datastores"
	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/system"
)

// backup is a dump of one service's schema.
type backup struct {
	*testing.T
	config  datastores.Config
	service string
	file    string
	admin   string // the URL of the database, for its superuser
}

// backUp dumps the schema of a service while the service runs.
func backUp(t *testing.T, f *fleet, config datastores.Config, service string) *backup {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(config.Data, "database-url"))
	if err != nil {
		t.Fatal(err)
	}
	admin, _, _ := strings.Cut(string(text), "?")
	b := &backup{t, config, service, filepath.Join(t.TempDir(), "dump"), admin}
	openDatabase(t, f, service).Close() // waits for the end of a recovery
	b.run("pg_dump", "--format", "custom", "--schema", service, "--file", b.file, admin)
	return b
}

func (b *backup) run(name string, args ...string) {
	b.Helper()
	if output, err := exec.CommandContext(b.Context(), postgresTool(name), args...).CombinedOutput(); err != nil {
		b.Fatalf("%s: %v: %s", name, err, output)
	}
}

// postgresTool returns the path of a program of Postgres, or "" if it is not installed.
func postgresTool(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(found) == 0 {
		return ""
	}
	return found[len(found)-1]
}

// restore replaces the schema while all processes are down, reconciles it with the other schemas, and starts the
// processes again. It records the changes that are lost.
func (b *backup) restore(f *fleet, book *ledger) {
	b.Helper()
	b.recordUnlogged(f, book)
	admin := secret.New(b.admin + "?sslmode=disable")
	conn, err := pgx.Connect(b.Context(), b.admin)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := conn.Exec(b.Context(), "DROP SCHEMA "+b.service+" CASCADE"); err != nil {
		b.Fatal(err)
	}
	urls, err := product.Bootstrap(b.Context(), admin, b.config.Data)
	if err != nil {
		b.Fatal(err)
	}
	u, err := url.Parse(b.admin)
	if err != nil {
		b.Fatal(err)
	}
	b.run(
		"pg_restore",
		"--exit-on-error",
		"--single-transaction",
		"--no-owner",
		"--no-privileges",
		"--role",
		strings.Trim(u.Path, "/")+"_"+b.service,
		"--schema",
		b.service,
		"--dbname",
		b.admin,
		b.file,
	)
	if err := f.startService(b.Context(), b.service); err == nil {
		b.Errorf("%s: got a start before the restored schema is reconciled, want an error", b.service)
	}
	if err := product.Reconcile(b.Context(), urls, product.ReconcileConfig{TakeBack: "yes"}, b.Output()); err != nil {
		b.Fatal(err)
	}
	if err := f.startServices(b.Context()); err != nil {
		b.Fatal(err)
	}
	if err := f.startGateway(b.Context(), f.addresses[principal.Gateway]); err != nil {
		b.Fatal(err)
	}
}

// recordUnlogged records the requests whose changes are lost with the schema, because the log does not have them
// yet.
func (b *backup) recordUnlogged(f *fleet, book *ledger) {
	b.Helper()
	var logged int64
	log, lost := openDatabase(b.T, f, system.Name), openDatabase(b.T, f, b.service)
	defer log.Close()
	defer lost.Close()
	if err := log.QueryRow(b.Context(), "SELECT seq FROM consumer WHERE source = $1 AND name = ''", b.service).Scan(&logged); err != nil {
		b.Fatal(err)
	}
	rows, err := lost.Query(b.Context(), "SELECT coalesce(request_id, '') FROM change WHERE seq IS NULL OR seq > $1", logged)
	if err != nil {
		b.Fatal(err)
	}
	var request string
	if _, err := pgx.ForEachRow(rows, []any{&request}, func() error {
		book.unlogged[request] = true
		return nil
	}); err != nil {
		b.Fatal(err)
	}
}

// killAll kills all processes, the gateway first.
func (f *fleet) killAll(t *testing.T) {
	t.Helper()
	kill(t, f.processes[principal.Gateway])
	for _, name := range product.Names() {
		kill(t, f.processes[name])
	}
}
