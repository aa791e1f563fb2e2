package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/deploy/internal/datastores"
	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/system"
)

// TestUpgrade upgrades an installation of the last release under load as docs/operate/upgrade.md says, goes back,
// and upgrades again. Requests fail only where that document says so, and succeed when they are sent again. In the
// end the schemas equal those of a new installation, and the log verifies.
func TestUpgrade(t *testing.T) {
	if !*full {
		t.Skip("the last release must be built, and upgraded for minutes: run make upgrade")
	}
	old := buildReleased(t)
	f, _ := startFleet(t, datastores.Config{Data: t.TempDir()})
	today := f.programs
	wanted := schemas(t, f)
	if err := f.stop(t.Context()); err != nil {
		t.Fatal(err)
	}

	p := prepareFleet(
		t,
		old,
		datastores.Config{Data: t.TempDir()},
		"IRONPLANE_OWNER_RATE=100000",
		"IRONPLANE_OWNER_BURST=100000",
		"IRONPLANE_OWNER_CONCURRENCY=100000",
	)
	f = p.fleet
	keys := processKeys(t, f)
	releasedKeys(t, p, old)
	c := p.startProcesses(t).WithKey(releasedAdmin(t, f))
	id := c.Do("POST", "/group", map[string]any{"name": "site"}).Want(http.StatusOK).ID()
	for n := range 20 {
		c.Do(
			"POST", fmt.Sprintf("/group/%d/entity/bulk", id),
			map[string]any{"prefix": fmt.Sprintf("10.0.%d.0/24", n), "gateway": fmt.Sprintf("10.0.%d.1", n), "subnet_mask": "255.255.255.0"},
		).
			Want(http.StatusOK)
		c.Do("POST", fmt.Sprintf("/group/%d/allocate", id), map[string]any{"count": 100, "owner": map[string]any{"id": n + 1, "name": "client"}}).
			Want(http.StatusOK)
	}
	names, pairs := startReplicas(t, f, 2)

	front, stop := startCallers(t, pairs[principal.Gateway], c.Key, fmt.Sprintf("/group/%d", id))
	for file, key := range keys { // older programs do not read keys that are new in this version
		writeKey(t, file, key)
	}
	gateways := pairs[principal.Gateway]
	for _, to := range []string{today, old, today} {
		if f.programs = to; to == today {
			for _, name := range product.Names() {
				if err := f.migrate(t.Context(), name); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, name := range names {
			for _, o := range pairs[name] {
				// An older program ends without draining, and an older gateway limits callers whose keys it has not seen yet.
				older := func() bool { return gateways[0].programs == old || gateways[1].programs == old }
				front.repeat.Store(to == today || older())
				o.stop(t)
				o.programs = to
				front.repeat.Store(to == today || older())
				o.start(t)
				front.repeat.Store(older())
			}
		}
		slices.Reverse(names) // on the way back, callers go before the services that they call
	}
	stop()
	t.Logf("%d requests, %d sent again, %d failed", front.requested.Load(), front.repeated.Load(), front.failed.Load())
	if front.failed.Load() > 0 || front.requested.Load() < 200 {
		t.Errorf("got %d failed of %d requests, want none of at least 200", front.failed.Load(), front.requested.Load())
	}
	for service, is := range schemas(t, f) {
		if is != wanted[service] {
			t.Errorf("the schema of %s: got the lines with +, want those with -:\n%s", service, difference(wanted[service], is))
		}
	}
	wantVerified(t, f)
}

// buildReleased builds the programs of the last release.
func buildReleased(t *testing.T) (folder string) {
	t.Helper()
	text, err := os.ReadFile("../upgrade/from")
	if err != nil {
		t.Fatal(err)
	}
	commit := strings.TrimSpace(string(text))
	if exec.Command("git", "cat-file", "-e", commit+"^{commit}").Run() != nil {
		t.Fatalf("got a clone without %s, want this commit of the last release (deploy/upgrade/from): git fetch --unshallow", commit)
	}
	source, folder := t.TempDir(), t.TempDir()
	run := func(in, name string, arguments ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, arguments...)
		cmd.Dir, cmd.WaitDelay = in, exitTimeout
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, arguments, err, out)
		}
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	run(root, "sh", "-c", "git archive "+commit+" | tar -x -C "+source)
	arguments := []string{"build", "-trimpath", "-o", folder + "/", "./deploy/setup", "./gateway/cmd/gateway"}
	services, err := filepath.Glob(source + "/services/*/cmd/*")
	if err != nil {
		t.Fatal(err)
	}
	run(source, "go", append(arguments, services...)...)
	return folder
}

// processKeys returns the content of the files of the processes' keys, by path.
func processKeys(t *testing.T, f *fleet) map[string]string {
	t.Helper()
	keys := map[string]string{}
	for _, name := range append(product.Names(), principal.Gateway) {
		text, err := os.ReadFile(f.file(name + ".process-key"))
		if err != nil {
			t.Fatal(err)
		}
		keys[f.file(name+".process-key")] = string(text)
	}
	return keys
}

func writeKey(t *testing.T, file, key string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
}

// releasedKeys replaces the processes' keys by those that the last release derives.
func releasedKeys(t *testing.T, p *prepared, programs string) {
	t.Helper()
	for _, name := range append(product.Names(), principal.Gateway) {
		cmd := exec.Command(filepath.Join(programs, "setup"), "process-key")
		cmd.Env = []string{"IRONPLANE_MASTER_KEY=" + p.masterKey.Reveal(), "IRONPLANE_PROCESS=" + name}
		key, err := cmd.Output()
		if failed, ok := errors.AsType[*exec.ExitError](err); ok && strings.Contains(string(failed.Stderr), "can be one of") {
			err = nil // the release has no key for this process
		}
		if err != nil {
			t.Fatalf("derive the key of %s: %v", name, err)
		}
		writeKey(t, p.file(name+".process-key"), string(key))
	}
}

// releasedAdmin creates the first admin in the schema of the last release, and returns a key.
func releasedAdmin(t *testing.T, f *fleet) string {
	t.Helper()
	db := openDatabase(t, f, identity.Name)
	defer db.Close()
	key := apikey.New().Reveal()
	hash := apikey.Hash(key)
	testkit.Execute(t, db.DB, `WITH first AS (INSERT INTO admin (username, permissions) VALUES ('admin', $1) RETURNING id)
		INSERT INTO api_key (name, owner_type, owner_id, hash) SELECT 'first key', 'admin', id, $2 FROM first`, principal.All.Names(), hash[:])
	return key
}

// schemas describes the tables, columns, indexes, constraints, triggers, functions and views of each service.
func schemas(t *testing.T, f *fleet) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range product.Names() {
		db := openDatabase(t, f, name)
		rows, err := db.Query(t.Context(), `
			SELECT format('column %s.%s %s %s %s', table_name, column_name, data_type, is_nullable, coalesce(generation_expression, column_default)) AS text FROM information_schema.columns WHERE table_schema = $1
			UNION ALL SELECT 'index ' || indexdef FROM pg_indexes WHERE schemaname = $1
			UNION ALL SELECT format('constraint %s.%s %s', conrelid::regclass, conname, pg_get_constraintdef(oid)) FROM pg_constraint WHERE connamespace = $1::regnamespace
			UNION ALL SELECT 'trigger ' || pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid WHERE relnamespace = $1::regnamespace AND NOT tgisinternal
			UNION ALL SELECT 'function ' || pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = $1::regnamespace
			UNION ALL SELECT format('view %s %s', viewname, definition) FROM pg_views WHERE schemaname = $1
			ORDER BY 1`, name)
		if err != nil {
			t.Fatal(err)
		}
		parts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		all[name] = strings.Join(parts, "\n")
		db.Close()
	}
	return all
}

// difference returns the lines that only one of the two texts has.
func difference(wanted, is string) string {
	var lines []string
	for sign, texts := range map[string][2]string{"-": {wanted, is}, "+": {is, wanted}} {
		others := maps.Collect(func(yield func(string, bool) bool) {
			for line := range strings.Lines(texts[1]) {
				if !yield(strings.TrimSpace(line), true) {
					return
				}
			}
		})
		for line := range strings.Lines(texts[0]) {
			if line = strings.TrimSpace(line); !others[line] {
				lines = append(lines, sign+" "+line)
			}
		}
	}
	return strings.Join(lines, "\n")
}

// wantVerified waits until the log has all changes, and verifies it.
func wantVerified(t *testing.T, f *fleet) {
	t.Helper()
	log := openDatabase(t, f, system.Name)
	for _, name := range product.Names() {
		db := openDatabase(t, f, name)
		var last, inLog int64
		testkit.Eventually(t, "the log has all changes of "+name, func() bool {
			testkit.Must(t, db.QueryRow(t.Context(), "SELECT last + (SELECT count(*) FROM change WHERE seq IS NULL) FROM sequencer").Scan(&last))
			testkit.Must(t, log.QueryRow(
				t.Context(), "SELECT coalesce(max(seq), 0) FROM consumer WHERE source = $1 AND name = ''", name,
			).Scan(&inLog))
			return last == inLog
		}, func() string { return fmt.Sprintf("got changes logged up to %d, want up to %d", inLog, last) })
	}
	ctx, cancel := context.WithTimeout(t.Context(), migrateTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(f.programs, system.Name), "verify")
	cmd.Env = f.serviceEnvironment(system.Name)
	if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "no items yet") {
		t.Errorf("verify: got %v and\n%s\nwant an unaltered log with items", err, out)
	}
}
