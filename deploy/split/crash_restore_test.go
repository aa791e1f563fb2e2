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

// backup is one service's schema as it was once.
type backup struct {
	*testing.T
	config  datastores.Config
	service string
	file    string
	admin   string // the database's URL
}

// backUp dumps a service's schema while it serves.
func backUp(t *testing.T, f *fleet, config datastores.Config, service string) *backup {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(config.Data, "database-url"))
	if err != nil {
		t.Fatal(err)
	}
	admin, _, _ := strings.Cut(string(text), "?")
	b := &backup{t, config, service, filepath.Join(t.TempDir(), "dump"), admin}
	openDatabase(t, f, service).Close() // it may be recovering
	b.run("pg_dump", "--format", "custom", "--schema", service, "--file", b.file, admin)
	return b
}

func (b *backup) run(name string, args ...string) {
	b.Helper()
	if said, err := exec.CommandContext(b.Context(), postgresTool(name), args...).CombinedOutput(); err != nil {
		b.Fatalf("%s: %v: %s", name, err, said)
	}
}

// postgresTool is where one of Postgres' programs is; empty: nowhere.
func postgresTool(name string) string {
	if place, err := exec.LookPath(name); err == nil {
		return place
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(found) == 0 {
		return ""
	}
	return found[len(found)-1]
}

// restore puts the schema back while nothing runs, takes it up, and starts all again. What only the schema knew of is
// noted.
func (b *backup) restore(f *fleet, book *ledger) {
	b.Helper()
	b.noteUnheard(f, book)
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

// noteUnheard notes whose changes are lost with the schema that the log had not heard of.
func (b *backup) noteUnheard(f *fleet, book *ledger) {
	b.Helper()
	var heard int64
	log, lost := openDatabase(b.T, f, system.Name), openDatabase(b.T, f, b.service)
	defer log.Close()
	defer lost.Close()
	if err := log.QueryRow(b.Context(), "SELECT seq FROM consumer WHERE source = $1 AND name = ''", b.service).Scan(&heard); err != nil {
		b.Fatal(err)
	}
	rows, err := lost.Query(b.Context(), "SELECT coalesce(request_id, '') FROM change WHERE seq IS NULL OR seq > $1", heard)
	if err != nil {
		b.Fatal(err)
	}
	var request string
	if _, err := pgx.ForEachRow(rows, []any{&request}, func() error {
		book.unheard[request] = true
		return nil
	}); err != nil {
		b.Fatal(err)
	}
}

// killAll ends all processes at once, the gateway first.
func (f *fleet) killAll(t *testing.T) {
	t.Helper()
	kill(t, f.processes[principal.Gateway])
	for _, name := range product.Names() {
		kill(t, f.processes[name])
	}
}
