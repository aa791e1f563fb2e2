package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/cli/command"
	"github.com/ironplane/ironplane/pkg/devservers"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/syncbuf"
)

// With one of these variables set, the test binary runs as standalone, or as the command line.
const (
	asProgram     = "IRONPLANE_TEST_AS_PROGRAM"
	asCommandLine = "IRONPLANE_TEST_AS_COMMAND_LINE"
)

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	if os.Getenv(asCommandLine) != "" {
		os.Exit(command.Run(context.Background(), os.Args[1:], command.System()))
	}
	end := func() {}
	if flag.Parse(); !*full { // the full test needs more disk than memory has
		end = testkit.UseMemory()
	}
	code := m.Run()
	end()
	os.Exit(code)
}

// instance is a standalone process under test.
type instance struct {
	t      *testing.T
	cmd    *exec.Cmd
	screen *syncbuf.Buffer
	URL    string
	exited chan error
}

// testTimeout is a generous limit for one step on a busy machine.
const testTimeout = 5 * time.Minute

// launch starts the program with PATH, the defaults of tests and the given environment.
func launch(t *testing.T, environment map[string]string, args ...string) *instance {
	t.Helper()
	existingPostgres := map[string]string{
		"PATH":                  os.Getenv("PATH"),
		"IRONPLANE_LISTEN":      "127.0.0.1:0",
		"IRONPLANE_OWNER_RATE":  "1000000",
		"IRONPLANE_OWNER_BURST": "1000000",
		asProgram:               "yes",
	}
	maps.Copy(existingPostgres, environment)
	r := &instance{t: t, cmd: exec.Command(os.Args[0], args...), screen: &syncbuf.Buffer{}, exited: make(chan error, 1)}
	for name, value := range existingPostgres {
		r.cmd.Env = append(r.cmd.Env, name+"="+value)
	}
	r.cmd.Stdout, r.cmd.Stderr = r.screen, r.screen
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { r.exited <- r.cmd.Wait() }()
	t.Cleanup(func() {
		_ = r.cmd.Process.Signal(syscall.SIGTERM)
		r.exit()
	})
	return r
}

var ready = regexp.MustCompile(`Ironplane is ready at (http://[0-9a-z.]+:[0-9]+)`)

// start launches the program and waits until it serves.
func start(t *testing.T, environment map[string]string) *instance {
	t.Helper()
	r := launch(t, environment)
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if found := ready.FindStringSubmatch(r.screen.String()); found != nil {
			r.URL = found[1]
			return r
		}
		select {
		case err := <-r.exited:
			r.exited <- err
			t.Fatalf("got the exit %v and\n%s\nwant a product that is ready", err, r.screen)
		default:
		}
	}
	t.Fatalf("got after %v\n%s\nwant a product that is ready", testTimeout, r.screen)
	return nil
}

// exit waits until the process exits, and returns its error.
func (r *instance) exit() error {
	r.t.Helper()
	select {
	case err := <-r.exited:
		r.exited <- err
		return err
	case <-time.After(testTimeout):
		_ = r.cmd.Process.Kill()
		r.t.Fatalf("got no exit in %v and\n%s\nwant one", testTimeout, r.screen)
		return nil
	}
}

func (r *instance) stop() {
	r.t.Helper()
	if err := r.cmd.Process.Signal(os.Interrupt); err != nil {
		r.t.Fatal(err)
	}
	if err := r.exit(); err != nil {
		r.t.Fatalf("got the exit %v and\n%s\nwant a clean one", err, r.screen)
	}
}

func (r *instance) client(key string) *testkit.Client {
	return testkit.ClientAt(r.t, r.URL).WithKey(key)
}

var keyOnScreen = regexp.MustCompile(`(?m)^  (ip_\w+)$`)

func (r *instance) key() string {
	r.t.Helper()
	var key string
	for deadline := time.Now().Add(testTimeout); key == "" && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if found := keyOnScreen.FindStringSubmatch(r.screen.String()); found != nil {
			key = found[1]
		}
	}
	if key == "" {
		r.t.Fatalf("got no key in %v on the screen\n%s\nwant one", testTimeout, r.screen)
	}
	return key
}

func TestFromFirstStartToSecond(t *testing.T) {
	t.Parallel()
	data := map[string]string{"IRONPLANE_DATA": filepath.Join(t.TempDir(), "data")}
	first := start(t, data)
	key := first.key()
	first.client(key).Do("POST", "/group", `{"name": "Berlin"}`).Want(200)

	curl := regexp.MustCompile(`(?m)^  (curl .*)$`).FindStringSubmatch(first.screen.String())
	if curl == nil {
		t.Fatalf("got\n%s\nwant a line with curl in it", first.screen)
	}
	if _, err := exec.LookPath("curl"); err == nil {
		pasted, err := exec.Command("sh", "-c", curl[1]).Output()
		if err != nil || !strings.Contains(string(pasted), `"url":"/admin/1"`) {
			t.Fatalf("%s: got %s (%v), want %q in it", curl[1], pasted, err, `"url":"/admin/1"`)
		}
	}
	postgres := postmaster(t, data["IRONPLANE_DATA"])

	second := launch(t, data)
	if err := second.exit(); err == nil || !strings.Contains(second.screen.String(), fmt.Sprint("in use by process ", first.cmd.Process.Pid)) {
		t.Fatalf("a second start on the folder: got %v and\n%s\nwant process %d named", err, second.screen, first.cmd.Process.Pid)
	}
	portUser := launch(t, map[string]string{"IRONPLANE_DATA": t.TempDir(), "IRONPLANE_LISTEN": strings.TrimPrefix(first.URL, "http://")})
	if err := portUser.exit(); err == nil || !strings.Contains(portUser.screen.String(), "is used by another program; set IRONPLANE_LISTEN") {
		t.Fatalf("a second start on the port: got %v and\n%s\nwant the port taken and IRONPLANE_LISTEN named", err, portUser.screen)
	}

	verified := launch(t, data, "verify")
	if err := verified.exit(); err != nil || !strings.Contains(verified.screen.String(), "are complete and unaltered") {
		t.Fatalf("verify: got %v and\n%s\nwant an unaltered log", err, verified.screen)
	}
	first.stop()
	if err := syscall.Kill(postgres, 0); err == nil {
		t.Error("got a Postgres that still runs, want it ended")
	}
	checkMasterKey(t, data, first)
	third := start(t, data)
	if got := third.client(key).Do("GET", "/group/1", nil).Want(200).Text; !strings.Contains(got, "Berlin") {
		t.Fatalf("got %s, want the group Berlin", got)
	}
	if strings.Contains(third.screen.String(), "ip_") {
		t.Errorf("got a key on the screen\n%s\nwant it shown at the first start alone", third.screen)
	}
}

// checkMasterKey checks the master key of a stopped installation. Only the owner may read the file, the key is not printed, and
// a missing key is not replaced.
func checkMasterKey(t *testing.T, data map[string]string, stopped *instance) {
	t.Helper()
	path := filepath.Join(data["IRONPLANE_DATA"], "master-key")
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Fatalf("%s: got %v (%v), want the mode 0600", path, info, err)
	}
	key, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := seal.Derive(secret.New(strings.TrimSpace(string(key))), "any"); err != nil {
		t.Error(err)
	}
	if strings.Contains(stopped.screen.String(), strings.TrimSpace(string(key))) {
		t.Error("got the master key on the screen, want it nowhere there")
	}
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	without := launch(t, data)
	if err := without.exit(); err == nil ||
		!strings.Contains(without.screen.String(), "master-key is missing, and the database holds data that is sealed with its key") {
		t.Fatalf("a start without the master key: got %v and\n%s\nwant a refusal, as it is missing", err, without.screen)
	}
	if _, err := os.Stat(path); err == nil {
		t.Fatal("got a new master key, want none")
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
}

func postmaster(t *testing.T, data string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(data, "postgres", "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestAdminKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "admin.key")
	environment := map[string]string{"IRONPLANE_DATA": filepath.Join(dir, "data"), "IRONPLANE_ADMIN_KEY_FILE": file}

	early := launch(t, environment, "admin-key")
	if err := early.exit(); err == nil || !strings.Contains(early.screen.String(), "holds no installation") {
		t.Fatalf("admin-key without an installation: got %v and\n%s\nwant a refusal, as there is none", err, early.screen)
	}
	r := start(t, environment)
	info, err := os.Stat(file)
	for deadline := time.Now().Add(testTimeout); err != nil && time.Now().Before(deadline); info, err = os.Stat(file) {
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil || info.Mode() != 0o600 {
		t.Fatalf("%s: got %v (%v), want the mode 0600", file, info, err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r.client(strings.TrimSpace(string(text))).Do("GET", "/auth/key/current", nil).Want(200)
	if strings.Contains(r.screen.String(), "ip_") {
		t.Errorf("got the key on the screen\n%s\nwant it in the file alone", r.screen)
	}

	whileRunning := launch(t, environment, "admin-key")
	if err := whileRunning.exit(); err != nil {
		t.Fatalf("admin-key while it runs: got %v and\n%s\nwant success", err, whileRunning.screen)
	}
	r.client(whileRunning.key()).Do("GET", "/admin/1", nil).Want(200)
	r.stop()
	stopped := launch(t, environment, "admin-key")
	if err := stopped.exit(); err != nil {
		t.Fatalf("admin-key while it is stopped: got %v and\n%s\nwant success", err, stopped.screen)
	}
	start(t, environment).client(stopped.key()).Do("GET", "/admin/1", nil).Want(200)
}

// TestKilledAndRepeated kills the process during a thousand creates with idempotency keys, restarts it and repeats them all.
// Each item exists once, and each earlier response is repeated literally.
func TestKilledAndRepeated(t *testing.T) {
	t.Parallel()
	data := map[string]string{"IRONPLANE_DATA": filepath.Join(t.TempDir(), "data")}
	r := start(t, data)
	key := r.key()
	const creates, writers = 1000, 16
	before, after := make([]string, creates), make([]string, creates)
	var acknowledged atomic.Int64
	post := func(client *testkit.Client, i int) (string, error) {
		response, err := client.Try(
			"POST",
			"/port-speed",
			map[string]any{"name": fmt.Sprint("item ", i), "speed": i + 1},
			"Idempotency-Key",
			fmt.Sprint("create ", i),
		)
		if err != nil {
			return "", err
		}
		return response.Want(200).Text, nil
	}
	forEach := func(do func(i int) error) *sync.WaitGroup {
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() {
				for i := w; i < creates; i += writers {
					if do(i) != nil {
						return // the process was killed
					}
				}
			})
		}
		return &all
	}
	client := r.client(key)
	beforeKill := forEach(func(i int) (err error) {
		before[i], err = post(client, i)
		acknowledged.Add(1)
		return err
	})
	for acknowledged.Load() < creates/2 {
		time.Sleep(time.Millisecond)
	}
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	beforeKill.Wait()
	_ = r.exit()

	r = start(t, data)
	client = r.client(key)
	forEach(func(i int) (err error) {
		after[i], err = post(client, i)
		return err
	}).Wait()
	repeated := 0
	for i := range creates {
		if before[i] != "" {
			repeated++
			if before[i] != after[i] {
				t.Errorf("create %d again: got %s, want %s", i, after[i], before[i])
			}
		}
	}
	list := testkit.Decode[[]struct{ Speed int }](client.Do("GET", "/port-speed?sort=speed", nil).Want(200))
	if len(list) != creates || list[0].Speed != 1 || list[creates-1].Speed != creates {
		t.Errorf("got the %d rows %v, want the speeds 1 to %d", len(list), list, creates)
	}
	if repeated == 0 {
		t.Error("got no create that was acknowledged before the kill, want some")
	}
	t.Logf("%d of %d were acknowledged before the kill", repeated, creates)
}

func TestOtherMajorVersion(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	dataDir := filepath.Join(data, "postgres", "data")
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dataDir, "PG_VERSION"), []byte("9.6\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := launch(t, map[string]string{"IRONPLANE_DATA": data})
	if err := r.exit(); err == nil || !strings.Contains(r.screen.String(), "9.6") {
		t.Fatalf("got %v and\n%s\nwant a refusal that names version 9.6", err, r.screen)
	}
}

// TestExistingServers starts with an existing database, and with no redis-server on PATH.
func TestExistingServers(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	dir := t.TempDir()
	postgres, err := devservers.StartPostgres(ctx, devservers.PostgresOptions{Dir: filepath.Join(dir, "postgres")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := postgres.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	environment := map[string]string{
		"IRONPLANE_DATA": filepath.Join(dir, "data"),
		"DATABASE_URL":   postgres.URL("postgres"),
		"PATH":           "/nowhere",
	}
	r := start(t, environment)
	if !strings.Contains(r.screen.String(), "this process emulates it") {
		t.Errorf("got\n%s\nwant a line about the emulated Redis", r.screen)
	}
	r.client(r.key()).Do("GET", "/auth/key/current", nil).Want(200)
	second := launch(
		t,
		map[string]string{"IRONPLANE_DATA": filepath.Join(dir, "other"), "DATABASE_URL": postgres.URL("postgres"), "PATH": "/nowhere"},
	)
	if err := second.exit(); err == nil || !strings.Contains(second.screen.String(), "another standalone runs on this database") {
		t.Fatalf("a second start on the database: got %v and\n%s\nwant a refusal, as another standalone runs on it", err, second.screen)
	}

	unreachable := launch(t, map[string]string{"IRONPLANE_DATA": t.TempDir(), "DATABASE_URL": "postgres://user:hunter2@127.0.0.1:1/x"})
	if err := unreachable.exit(); err == nil || strings.Contains(unreachable.screen.String(), "hunter2") ||
		!strings.Contains(unreachable.screen.String(), "connect to the database") {
		t.Fatalf("got %v and\n%s\nwant a refusal to connect to the database, without the password", err, unreachable.screen)
	}
	for _, invalid := range []map[string]string{
		{"DATABASE_URL": "user=me password=hunter2"}, {"REDIS_URL": "hunter2", "DATABASE_URL": postgres.URL("postgres")},
		{"IRONPLANE_LOG_LEVEL": "loud"}, {"IRONPLANE_LOG_FORMAT": "xml"},
	} {
		environment := map[string]string{"IRONPLANE_DATA": t.TempDir()}
		maps.Copy(environment, invalid)
		r := launch(t, environment)
		if err := r.exit(); err == nil || strings.Contains(r.screen.String(), "hunter2") {
			t.Errorf("%v: got %v and\n%s\nwant a refusal without the password", slices.Sorted(maps.Keys(invalid)), err, r.screen)
		}
	}
}

// TestMaintenance begins and ends maintenance by commands, while standalone runs, and keeps it over a restart.
func TestMaintenance(t *testing.T) {
	t.Parallel()
	data := map[string]string{"IRONPLANE_DATA": filepath.Join(t.TempDir(), "data"), "IRONPLANE_MAINTENANCE_REASON": "Disks are replaced."}
	command := func(name string) string {
		t.Helper()
		r := launch(t, data, name)
		if r.exit() != nil {
			t.Fatalf("%s: got\n%s\nwant success", name, r.screen)
		}
		return r.screen.String()
	}
	const refusal = "The installation is in maintenance and accepts no changes. Reason: Disks are replaced."
	r := start(t, data)
	key := r.key()
	c := r.client(key)
	command("maintenance-file-on")
	c.Do("POST", "/group", `{"name": "Berlin"}`).WantDetail(problem.Unavailable, refusal)
	c.Do("GET", "/group", nil).Want(200)
	if err := r.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	command("maintenance-file-off")
	c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200)

	command("maintenance-on")
	testkit.Eventually(t, "changes are refused", func() bool { return c.Do("POST", "/group", `{}`).Status == 503 })
	c.Do("POST", "/group", `{"name": "Bonn"}`).WantDetail(problem.Unavailable, refusal)
	r.stop()
	if out := command("maintenance-status"); !strings.Contains(out, `with the reason "Disks are replaced."`) {
		t.Errorf("maintenance-status: got %s, want the reason", out)
	}
	r = start(t, data)
	c = r.client(key)
	c.Do("POST", "/group", `{"name": "Bonn"}`).WantDetail(problem.Unavailable, refusal)
	command("maintenance-off")
	testkit.Eventually(t, "changes are accepted", func() bool { return c.Do("POST", "/group", `{}`).Status == 422 })
	r.stop()
}

// TestHelp shows that help succeeds, and that an unknown command fails.
func TestHelp(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		command, want string
		succeeds      bool
	}{
		{"help", "IRONPLANE_LISTEN", true},
		{"--help", "default: 127.0.0.1:8080", true},
		{"nonsense", `"nonsense"`, false},
	} {
		r := launch(t, nil, test.command)
		if err := r.exit(); (err == nil) != test.succeeds || !strings.Contains(r.screen.String(), test.want) {
			t.Errorf("%s: got the exit %v and\n%s\nwant success %t and %q in it", test.command, err, r.screen, test.succeeds, test.want)
		}
	}
}
