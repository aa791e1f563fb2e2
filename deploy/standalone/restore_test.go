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

var full = flag.Bool("full", false, "restore in every way that docs/operate/backup.md knows")

const document = "../../docs/operate/backup.md"

// TestRestore backs up and restores by the words of docs/operate/backup.md, while callers change things.
func TestRestore(t *testing.T) {
	t.Parallel()
	needsTools(t, "pg_dump", "pg_restore", "psql", "pg_isready", "createdb")
	for name, way := range map[string]struct {
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
			if !way.always && !*full {
				t.Skip("make restore does this")
			}
			t.Parallel()
			i := newRestored(t)
			for range 20 {
				i.change()
			}
			i.underLoad(func() { i.run("backup", nil) })
			i.underLoad(func() { time.Sleep(time.Second) })
			i.running.stop()
			stop := i.postgres()
			environment := map[string]string{"IRONPLANE_TAKE_BACK": "yes"}
			if way.services != "" {
				environment["SERVICES"] = way.services
			}
			if way.elsewhere {
				other := i.otherDatabase()
				i.environment["DATABASE_URL"], environment["DATABASE_URL"] = other, other
				i.environment["IRONPLANE_MASTER_KEY_FILE"] = filepath.Join(i.folder, "ironplane.master-key")
				i.environment["IRONPLANE_DATA"] = filepath.Join(i.folder, "other data")
			}
			said := i.run("restore", environment)
			for _, service := range product.Names() {
				if taken := strings.Contains(
					said,
					service+" is taken up",
				); taken != (way.services == "" || slices.Contains(strings.Fields(way.services), service)) {
					t.Errorf("%s is taken up: got %t, want %t, in\n%s", service, taken, !taken, said)
				}
			}
			if !way.elsewhere {
				stop()
			}
			i.start()
			i.check()
			i.running.stop()
		})
	}
}

// TestPointInTime goes back to a moment by the words of the document.
func TestPointInTime(t *testing.T) {
	t.Parallel()
	if !*full {
		t.Skip("make restore does this")
	}
	needsTools(t, "pg_basebackup", "psql", "tar")
	i := newRestored(t)
	i.change()
	i.running.stop()
	i.run("archive", nil)
	i.start()
	i.underLoad(func() { i.run("base backup", nil) })
	moment, err := i.shell(`psql "$(sed 's/?.*//' data/database-url)" -A -t -c "SELECT clock_timestamp()"`, nil).Output()
	if err != nil {
		t.Fatal(err)
	}
	kept := maps.Clone(i.groups)
	for len(i.groups) < len(kept)+20 {
		i.change()
	}
	i.running.stop()
	if said := i.run(
		"point in time",
		map[string]string{"MOMENT": strings.TrimSpace(string(moment))},
	); strings.Count(
		said,
		"is taken up",
	) != 5 {
		t.Errorf("got\n%s\nwant %q in it 5 times", said, "is taken up")
	}
	i.start()
	there := map[string]bool{}
	for _, group := range i.all("/group") {
		there[string(group["name"])] = true
	}
	for name := range i.groups {
		if _, is := kept[name]; is != there[strconv.Quote(name)] {
			t.Errorf("the group %s is there: got %t, want %t", name, there[strconv.Quote(name)], is)
		}
	}
	i.check()
	i.running.stop()
}

func needsTools(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("restoring needs ", tool)
		}
	}
}

// restored is an installation in a folder, as the document takes it.
type restored struct {
	*testing.T
	folder      string
	environment map[string]string
	running     *running
	key         string
	client      *testkit.Client

	mu     sync.Mutex
	groups map[string]int64 // by name: those whose creation was answered
}

func newRestored(t *testing.T) *restored {
	i := &restored{T: t, folder: t.TempDir(), groups: map[string]int64{}}
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

func (i *restored) start() {
	i.Helper()
	i.running = start(i.T, i.environment)
	if i.key == "" {
		i.key = i.running.key()
	}
	i.client = i.running.client(i.key)
}

func (i *restored) shell(script string, environment map[string]string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience) // a block may wait for what does not come
	i.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "sh", "-e", "-c", script)
	cmd.Dir, cmd.WaitDelay = i.folder, patience
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + i.folder}
	for name, value := range environment {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

func (i *restored) run(name string, environment map[string]string) string {
	i.Helper()
	said, err := i.shell(testkit.CodeBlock(i, document, name), environment).CombinedOutput()
	if err != nil {
		i.Fatalf("%s: %v\n%s", name, err, said)
	}
	return string(said)
}

// postgres starts its own Postgres alone. What it answers stops it.
func (i *restored) postgres() (stop func()) {
	i.Helper()
	cmd := i.shell(testkit.CodeBlock(i, document, "postgres")+"\necho ready\nread end\nkill $!\nwait", nil)
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

// otherDatabase is one of another name on the same server.
func (i *restored) otherDatabase() string {
	i.Helper()
	own, err := os.ReadFile(filepath.Join(i.folder, "data", "database-url"))
	if err != nil {
		i.Fatal(err)
	}
	url, _, _ := strings.Cut(string(own), "?")
	cmd := i.shell(`createdb --maintenance-db "$URL" other`, map[string]string{"URL": url})
	if said, err := cmd.CombinedOutput(); err != nil {
		i.Fatalf("create the other database: %v: %s", err, said)
	}
	return strings.TrimSuffix(url, "/ironplane") + "/other"
}

// change makes a group, perhaps with a DHCP server, and a key that it revokes.
func (i *restored) change() {
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
	for other, taken := range i.groups {
		if taken == id {
			i.Errorf("got the id %d for %s and for %s, want one id each", id, other, name)
		}
	}
	i.groups[name] = id
}

// underLoad does something while callers change things.
func (i *restored) underLoad(do func()) {
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

func (i *restored) all(path string) []map[string]json.RawMessage {
	i.Helper()
	return testkit.Decode[[]map[string]json.RawMessage](i.client.Do(http.MethodGet, path, nil).Want(http.StatusOK))
}

// check compares what is there with the log, goes on, and verifies.
func (i *restored) check() {
	i.Helper()
	for range 5 {
		i.change()
	}
	there := map[string]bool{}
	for _, group := range i.all("/group") {
		var name string
		if err := json.Unmarshal(group["name"], &name); err != nil {
			i.Fatal(err)
		}
		there[name] = true
	}
	var logged map[string]int
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		logged = map[string]int{}
		for _, item := range i.all("/log?type=group.created") {
			var targets []struct{ Name string }
			if err := json.Unmarshal(item["targets"], &targets); err != nil {
				i.Fatal(err)
			}
			logged[targets[0].Name]++
		}
		missing := 0
		for name := range there {
			if logged[name] == 0 {
				missing++
			}
		}
		if missing == 0 {
			break
		}
		if time.Now().After(deadline) {
			i.Fatalf("got %d of %d groups without a log item, want none", missing, len(there))
		}
	}
	for name, n := range logged {
		if n > 1 {
			i.Errorf("the group %s: got %d log items, want 1", name, n)
		}
	}
	if len(there) < 25 {
		i.Errorf("got %d groups, want at least 25", len(there))
	}
	verified := launch(i.T, i.environment, "verify")
	if err := verified.exit(); err != nil {
		i.Errorf("verify: got %v and\n%s\nwant success", err, verified.screen)
	}
	i.Logf("%d groups were made, %d are there, %d in the log", len(i.groups), len(there), len(logged))
}
