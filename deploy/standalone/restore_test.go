package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/testkit"
)

var full = flag.Bool("full", false, "restore in every way that docs/operate/backup.md describes")

const page = "../../docs/operate/backup.md"

// TestRestore backs up and restores with the commands of docs/operate/backup.md, while callers change items.
func TestRestore(t *testing.T) {
	t.Parallel()
	needsTools(t, "pg_dump", "pg_restore", "psql", "pg_isready", "createdb")
	for name, test := range map[string]struct {
		services string // empty: all
		elsewhere,
		always bool
	}{
		"one service older":             {services: "network", always: true},
		"log older":                     {services: "system"},
		"identity older":                {services: "identity"},
		"two older":                     {services: "pxe network"},
		"whole":                         {},
		"into a database of other name": {elsewhere: true},
	} {
		t.Run(name, func(t *testing.T) {
			if !test.always && !*full {
				t.Skip("restores of all kinds take minutes: run make restore")
			}
			t.Parallel()
			i := newInstallation(t)
			for range 20 {
				i.change()
			}
			i.underLoad(func() { i.run("backup", nil) })
			i.underLoad(func() { time.Sleep(time.Second) })
			i.instance.stop()
			stop := i.postgres()
			environment := map[string]string{"IRONPLANE_TAKE_BACK": "yes"}
			if test.services != "" {
				environment["SERVICES"] = test.services
			}
			if test.elsewhere {
				other := i.createOtherDatabase()
				i.environment["DATABASE_URL"], environment["DATABASE_URL"] = other, other
				i.environment["IRONPLANE_MASTER_KEY_FILE"] = filepath.Join(i.folder, "ironplane.master-key")
				i.environment["IRONPLANE_DATA"] = filepath.Join(i.folder, "other data")
			}
			output := i.run("restore", environment)
			for _, service := range product.Names() {
				if reconciled := strings.Contains(
					output,
					service+" is reconciled",
				); reconciled != (test.services == "" || slices.Contains(strings.Fields(test.services), service)) {
					t.Errorf("%s is reconciled: got %t, want %t, in\n%s", service, reconciled, !reconciled, output)
				}
			}
			if !test.elsewhere {
				stop()
			}
			i.start()
			i.check()
			i.instance.stop()
		})
	}
}

// TestPointInTime restores the state at a point in time with the commands of the page.
func TestPointInTime(t *testing.T) {
	t.Parallel()
	if !*full {
		t.Skip("restores of all kinds take minutes: run make restore")
	}
	needsTools(t, "pg_basebackup", "psql", "tar")
	i := newInstallation(t)
	i.change()
	i.instance.stop()
	i.run("archive", nil)
	i.start()
	i.underLoad(func() { i.run("base backup", nil) })
	timestamp, err := i.shell(`psql "$(sed 's/?.*//' data/database-url)" -A -t -c "SELECT clock_timestamp()"`, nil).Output()
	if err != nil {
		t.Fatal(err)
	}
	groupsBefore := maps.Clone(i.groups)
	for len(i.groups) < len(groupsBefore)+20 {
		i.change()
	}
	i.instance.stop()
	if output := i.run(
		"point in time",
		map[string]string{"MOMENT": strings.TrimSpace(string(timestamp))},
	); strings.Count(
		output,
		"is reconciled",
	) != 5 {
		t.Errorf("got\n%s\nwant %q in it 5 times", output, "is reconciled")
	}
	i.start()
	existing := map[string]bool{}
	for _, group := range i.all("/group") {
		existing[string(group["name"])] = true
	}
	for name := range i.groups {
		if _, want := groupsBefore[name]; want != existing[strconv.Quote(name)] {
			t.Errorf("the group %s exists: got %t, want %t", name, existing[strconv.Quote(name)], want)
		}
	}
	i.check()
	i.instance.stop()
}

func needsTools(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(tool + " is not installed; Debian's packages postgresql, postgresql-client and tar have what restores need")
		}
	}
}

// installation is an installation in a folder, as the page expects it.
type installation struct {
	*testing.T
	folder      string
	environment map[string]string
	instance    *instance
	key         string
	client      *testkit.Client

	mu     sync.Mutex
	groups map[string]int64 // the ids of created groups by name
}

func newInstallation(t *testing.T) *installation {
	i := &installation{T: t, folder: t.TempDir(), groups: map[string]int64{}}
	i.environment = map[string]string{"IRONPLANE_DATA": filepath.Join(i.folder, "data")}
	if err := os.Mkdir(filepath.Join(i.folder, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	program := fmt.Sprintf("#!/bin/sh\n%s=yes exec %q \"$@\"\n", asProgram, os.Args[0])
	if err := os.WriteFile(filepath.Join(i.folder, "bin", "standalone"), []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	i.start()
	return i
}

func (i *installation) start() {
	i.Helper()
	i.instance = start(i.T, i.environment)
	if i.key == "" {
		i.key = i.instance.key()
	}
	i.client = i.instance.client(i.key)
}

func (i *installation) shell(script string, environment map[string]string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), 2*testTimeout) // a block may wait forever
	i.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "sh", "-e", "-c", script)
	cmd.Dir, cmd.WaitDelay = i.folder, testTimeout
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + i.folder}
	for name, value := range environment {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

func (i *installation) run(name string, environment map[string]string) string {
	i.Helper()
	output, err := i.shell(testkit.CodeBlock(i, page, name), environment).CombinedOutput()
	if err != nil {
		i.Fatalf("%s: %v\n%s", name, err, output)
	}
	return string(output)
}

// postgres starts the installation's PostgreSQL without standalone, and returns a function that stops it.
func (i *installation) postgres() (stop func()) {
	i.Helper()
	cmd := i.shell(testkit.CodeBlock(i, page, "postgres")+"\necho ready\nread end\nkill $!\nwait", nil)
	end, err := cmd.StdinPipe()
	if err != nil {
		i.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		i.Fatal(err)
	}
	cmd.Stderr = i.Output()
	if err := cmd.Start(); err != nil {
		i.Fatal(err)
	}
	if _, err := fmt.Fscan(out, new(string)); err != nil {
		i.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_, _ = fmt.Fprintln(end)
		if err := cmd.Wait(); err != nil {
			i.Error(err)
		}
	})
	i.Cleanup(stop)
	return stop
}

// createOtherDatabase creates a database with another name on the same server, and returns its URL.
func (i *installation) createOtherDatabase() string {
	i.Helper()
	own, err := os.ReadFile(filepath.Join(i.folder, "data", "database-url"))
	if err != nil {
		i.Fatal(err)
	}
	url, _, _ := strings.Cut(string(own), "?")
	cmd := i.shell(`createdb --maintenance-db "$URL" other`, map[string]string{"URL": url})
	if output, err := cmd.CombinedOutput(); err != nil {
		i.Fatalf("create the other database: %v: %s", err, output)
	}
	return strings.TrimSuffix(url, "/ironplane") + "/other"
}

// change creates a group, sometimes with a DHCP server, and sometimes creates and revokes a key.
func (i *installation) change() {
	name := fmt.Sprint("g", rand.Uint64())
	body := map[string]any{"name": name}
	if rand.IntN(3) == 0 {
		body["pxe_dhcp_server"] = i.client.Do(
			http.MethodPost, "/pxe/dhcp", map[string]any{"name": name, "http": map[string]any{"host": "192.0.2.1"}},
		).
			Want(http.StatusOK).
			ID()
	}
	if rand.IntN(3) == 0 {
		key := i.client.Do(http.MethodPost, "/auth/key", map[string]any{"name": name}).Want(http.StatusOK).ID()
		i.client.Do(http.MethodDelete, fmt.Sprintf("/auth/key/%d", key), nil).Want(http.StatusOK)
	}
	id := i.client.Do(http.MethodPost, "/group", body).Want(http.StatusOK).ID()
	i.mu.Lock()
	defer i.mu.Unlock()
	for other, reconciled := range i.groups {
		if reconciled == id {
			i.Errorf("got the id %d for %s and for %s, want one id each", id, other, name)
		}
	}
	i.groups[name] = id
}

// underLoad calls do while four callers change items.
func (i *installation) underLoad(do func()) {
	i.Helper()
	done := make(chan struct{})
	var changing sync.WaitGroup
	for range 4 {
		changing.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					i.change()
				}
			}
		})
	}
	do()
	close(done)
	changing.Wait()
}

func (i *installation) all(path string) []map[string]json.RawMessage {
	i.Helper()
	return testkit.Decode[[]map[string]json.RawMessage](i.client.Do(http.MethodGet, path, nil).Want(http.StatusOK))
}

// check changes items, compares the groups with the log, and verifies the log.
func (i *installation) check() {
	i.Helper()
	for range 5 {
		i.change()
	}
	existing := map[string]bool{}
	for _, group := range i.all("/group") {
		var name string
		if err := json.Unmarshal(group["name"], &name); err != nil {
			i.Fatal(err)
		}
		existing[name] = true
	}
	var logged map[string]int
	for deadline := time.Now().Add(testTimeout); ; time.Sleep(50 * time.Millisecond) {
		logged = map[string]int{}
		for _, item := range i.all("/log?type=group.created") {
			var targets []struct{ Name string }
			if err := json.Unmarshal(item["targets"], &targets); err != nil {
				i.Fatal(err)
			}
			logged[targets[0].Name]++
		}
		missing := 0
		for name := range existing {
			if logged[name] == 0 {
				missing++
			}
		}
		if missing == 0 {
			break
		}
		if time.Now().After(deadline) {
			i.Fatalf("got %d of %d groups without a log item, want none", missing, len(existing))
		}
	}
	for name, n := range logged {
		if n > 1 {
			i.Errorf("the group %s: got %d log items, want 1", name, n)
		}
	}
	if len(existing) < 25 {
		i.Errorf("got %d groups, want at least 25", len(existing))
	}
	verified := launch(i.T, i.environment, "verify")
	if err := verified.exit(); err != nil {
		i.Errorf("verify: got %v and\n%s\nwant success", err, verified.screen)
	}
	i.Logf("%d groups were created, %d exist, %d are in the log", len(i.groups), len(existing), len(logged))
}
