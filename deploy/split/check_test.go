package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/deploy/internal/datastores"
	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/auth/principal"
)

// check runs a program with --check, and returns its output. overrides replace variables of its environment.
func (f *fleet) check(t *testing.T, name string, overrides ...string) (string, error) {
	t.Helper()
	environment := f.serviceEnvironment(name)
	if name == principal.Gateway {
		environment = append(f.common(name), f.services())
	}
	cmd := exec.Command(filepath.Join(f.programs, name), "--check")
	cmd.Env = slices.Concat(environment, []string{"IRONPLANE_LISTEN=127.0.0.1:0"}, overrides) // of two values, the last one counts
	out, err := cmd.CombinedOutput()
	for _, file := range []string{name + ".database-url", "redis-url", name + ".process-key"} {
		if text, err := os.ReadFile(f.file(file)); err == nil && strings.Contains(string(out), strings.TrimSpace(string(text))) {
			t.Errorf("%s --check: got its %s in the output, want no secret there", name, file)
		}
	}
	return string(out), err
}

// TestCheck tests that --check reports everything that would keep a program from starting.
func TestCheck(t *testing.T) {
	t.Parallel()
	f, _ := startFleet(t, datastores.Config{Data: t.TempDir()})
	for _, name := range append(product.Names(), principal.Gateway) {
		if output, err := f.check(t, name); err != nil || strings.Contains(output, "fails") || !strings.Contains(output, "ok ") {
			t.Errorf("%s --check: got %v and\n%s\nwant only checks that pass", name, err, output)
		}
	}
	wantFailure := func(name string, parts []string, overrides ...string) {
		t.Helper()
		output, err := f.check(t, name, overrides...)
		if err == nil {
			t.Errorf("%s --check: got no error and\n%s\nwant an error", name, output)
		}
		for _, part := range parts {
			if !strings.Contains(output, part) {
				t.Errorf("%s --check: got\n%s\nwant %q in it", name, output, part)
			}
		}
	}
	foreign := []string{
		"IRONPLANE_PROCESS_KEY_FILE=" + f.file("system.process-key"), "IRONPLANE_MESH_CERTIFICATE=" + f.file("pxe.crt"),
		"REDIS_URL=redis://127.0.0.1:1", "IRONPLANE_LISTEN=" + f.addresses["network"], "IRONPLANE_DRAIN_DELAY=soon",
	}
	wantFailure(
		"gateway",
		[]string{
			"IRONPLANE_PROCESS_KEY: it is the gateway's: ",
			"certificate: valid, and for this process",
			"REDIS_URL: ",
			"is in use",
			`IRONPLANE_DRAIN_DELAY is "soon"`,
			"5 of ",
		},
		foreign...)
	wantFailure(
		"network",
		[]string{"IRONPLANE_PROCESS_KEY: ", "the schema network is not first in the search_path of the role ironplane_pxe", "5 of "},
		append(foreign, "DATABASE_URL_FILE="+f.file("pxe.database-url"), "IRONPLANE_DRAIN_DELAY=1s")...)
	wantFailure(
		"system",
		[]string{
			"IRONPLANE_SMTP: valid, with a sender: IRONPLANE_MAIL_FROM is", `IRONPLANE_API_URL is "panel"`,
			"IRONPLANE_LICENSE: valid, with a signer", "skipped  IRONPLANE_SMTP: the server accepts connections", "3 of ",
		},
		"IRONPLANE_SMTP=smtp://127.0.0.1:1", "IRONPLANE_API_URL=panel", "IRONPLANE_LICENSE=http://license.example.com/")
	wantFailure("pxe", []string{"IRONPLANE_STORE: valid: ", "skipped  site agents: ", "1 of "}, "IRONPLANE_STORE=ftp://store")
	wantFailure("identity", []string{"IRONPLANE_PASSKEY_DOMAIN and IRONPLANE_PASSKEY_ORIGINS: ", "1 of "}, "IRONPLANE_PASSKEY_ORIGINS=panel")
	wantFailure("identity", []string{"DATABASE_URL: ", "failed"}, "DATABASE_URL=postgres://identity:x@127.0.0.1:1/none")

	url, err := os.ReadFile(f.file("network.database-url"))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), string(url))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, statement := range []string{"DELETE FROM migration WHERE version_id = 2", "ALTER ROLE CURRENT_USER CONNECTION LIMIT 30"} {
		if _, err := conn.Exec(t.Context(), statement); err != nil && !strings.Contains(statement, "ALTER") {
			t.Fatal(err)
		}
	}
	wantFailure("network", []string{"lacks the migrations 0002_group_counts.sql: run migrate first"})
}
