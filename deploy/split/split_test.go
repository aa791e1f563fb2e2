package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/datastores"
	"github.com/ironplane/ironplane/deploy/internal/ports"
	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/devservers/child"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/syncbuf"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/admin"
)

// programs is the folder of the tested programs.
var programs string

func TestMain(m *testing.M) {
	if arguments := os.Getenv(guessesEnv); arguments != "" {
		if err := runGuesser(arguments); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	folder, err := os.MkdirTemp("", "ironplane-split-test-")
	if err != nil {
		panic(err)
	}
	programs = folder
	http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = 256 // as many connections as the tests have callers
	code := 1
	if err := build(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		end := func() {}
		if flag.Parse(); !*full { // the long runs need more than memory has room for
			end = testkit.UseMemory()
		}
		code = m.Run()
		end()
	}
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

func build() error {
	const module = "github.com/ironplane/ironplane/"
	arguments := []string{
		"build",
		"-o",
		programs + "/",
		module + "deploy/split",
		module + "deploy/setup",
		module + "gateway/cmd/gateway",
		module + "services/pxe/cmd/site-agent",
	}
	for _, name := range product.Names() {
		arguments = append(arguments, module+"services/"+name+"/cmd/"+name)
	}
	if out, err := exec.Command("go", arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return nil
}

// running is a running split program.
type running struct {
	t      *testing.T
	cmd    *exec.Cmd
	screen *syncbuf.Buffer
	data   string
	exited chan struct{}
	err    error
	client *testkit.Client
}

const (
	startTimeout = 5 * time.Minute
	exitTimeout  = 5 * time.Minute
)

// readyOutput matches the output of a program that is ready, with its URL and the first key.
var readyOutput = regexp.MustCompile(`(?s)ready at (http://[0-9a-z.]+:[0-9]+).*\n  (ip_\w+)\n`)

// start starts split with some variables, and waits until it is ready.
func start(t *testing.T, environment ...string) *running {
	t.Helper()
	r := &running{t: t, screen: &syncbuf.Buffer{}, data: filepath.Join(t.TempDir(), "data"), exited: make(chan struct{})}
	public, err := ports.Free(1) // split listens there first, and its gateway later
	if err != nil {
		t.Fatal(err)
	}
	r.cmd = exec.Command(filepath.Join(programs, "split"))
	r.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "IRONPLANE_LISTEN=" + public[0], "IRONPLANE_DATA=" + r.data}
	r.cmd.Env = append(r.cmd.Env, environment...)
	r.cmd.Stdout, r.cmd.Stderr = r.screen, r.screen
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r.cmd.WaitDelay = exitTimeout
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.exited)
		r.err = r.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Signal(syscall.SIGTERM)
		r.exit()
	})
	r.eventually("split is ready", func() bool {
		select {
		case <-r.exited:
			t.Fatalf("got an exit (%v) and\n%s\nwant a product that is ready", r.err, r.screen)
		default:
		}
		return readyOutput.MatchString(r.screen.String())
	})
	found := readyOutput.FindStringSubmatch(r.screen.String())
	r.client = testkit.ClientAt(t, found[1]).WithKey(found[2])
	return r
}

// eventually waits until holds returns true, and prints the output of split if it never does.
func (r *running) eventually(condition string, holds func() bool) {
	r.t.Helper()
	testkit.Eventually(r.t, condition, holds, func() string { return fmt.Sprint(r.screen) })
}

// exit waits until split has ended, and returns its error.
func (r *running) exit() error {
	r.t.Helper()
	select {
	case <-r.exited:
		return r.err
	case <-time.After(exitTimeout):
		_ = r.cmd.Process.Kill()
		r.t.Fatalf("got no exit in %v and\n%s\nwant one", exitTimeout, r.screen)
		return nil
	}
}

// children returns the process ids of the child processes, by program name.
func (r *running) children() map[string]int {
	r.t.Helper()
	found := map[string]int{}
	for _, p := range childrenOf(r.t, r.cmd.Process.Pid) {
		found[p.name] = p.pid
	}
	for _, name := range append(product.Names(), principal.Gateway, "postgres") {
		if found[name] == 0 {
			r.t.Fatalf("got the processes %v, want %s among them", found, name)
		}
	}
	return found
}

type osProcess struct {
	name string
	pid  int
}

// childrenOf returns the child processes of a process.
func childrenOf(t *testing.T, parent int) (children []osProcess) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		text, err := os.ReadFile(file) // <pid> (<name>) <state> <parent> …
		begin, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
		if err != nil || end < 0 {
			continue // it has ended
		}
		if rest := strings.Fields(string(text[end+1:])); rest[1] == strconv.Itoa(parent) {
			pid, err := strconv.Atoi(strings.TrimSpace(string(text[:begin])))
			if err != nil {
				t.Fatal(err)
			}
			children = append(children, osProcess{string(text[begin+1 : end]), pid})
		}
	}
	return children
}

func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(text), ") Z ")
}

// awaitNoProcesses waits until all of the processes have ended.
func (r *running) awaitNoProcesses(children map[string]int) {
	r.t.Helper()
	for name, pid := range children {
		r.eventually(name+" has ended", func() bool { return !alive(pid) })
	}
}

// requireProc skips the test on systems without /proc.
func requireProc(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("/proc is not mounted, in which the test finds processes: the test needs Linux")
	}
}

// TestRun starts split, uses it and its commands, and stops it. It leaves no process and no secret behind.
func TestRun(t *testing.T) {
	t.Parallel()
	requireProc(t)
	r := start(
		t,
		"IRONPLANE_LOG_FORMAT=json",
		"IRONPLANE_LOG_LEVEL=INFO",
		"IRONPLANE_SMTP=smtp+plain://127.0.0.1:1",
		"IRONPLANE_MAIL_FROM=noreply@example.com",
	)
	c := r.client
	speed := c.Do("POST", "/port-speed", `{"name": "fast", "speed": 1000}`).Want(200).ID()
	path := fmt.Sprintf("/port-speed/%d", speed)
	c.Do("GET", path, nil).Want(200)
	c.Do("GET", "/admin", nil).Want(200)
	c.Do("GET", "/client/1", nil).Want(404)
	c.WithKey("").Do("GET", "/-/openapi.json", nil).Want(200)
	c.WithKey("").Do("GET", "/admin", nil).Want(401)

	children := r.children()
	for name, pid := range children {
		arguments, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || bytes.Contains(arguments, []byte("postgres://")) || bytes.Contains(arguments, []byte("PRIVATE")) {
			t.Errorf("%s: got the arguments %q (%v), want no secret there", name, arguments, err)
		}
	}
	files, err := filepath.Glob(filepath.Join(r.data, "run", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("got the files %v (%v), want at least one", files, err)
	}
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s: got the mode %v, want 0600", file, info.Mode())
		}
	}

	t.Run("lines", func(t *testing.T) { testLines(t, r) })

	command := func(name string) string {
		c := exec.Command(filepath.Join(programs, "split"), name)
		c.Env = append(slices.Clone(r.cmd.Env), "IRONPLANE_SKIP_CHANGE=pxe:17")
		out, _ := c.CombinedOutput()
		return string(out)
	}
	for name, wanted := range map[string]string{
		"verify": "are complete and unaltered", "admin-key": "A new key of the admin", "skip-change": "no consumer has stopped at that change",
	} {
		if out := command(name); !strings.Contains(out, wanted) {
			t.Errorf("%s while it runs: got %s, want %q in it", name, out, wanted)
		}
	}
	awaitChange := func(status int) { // of a change that is invalid outside maintenance
		t.Helper()
		r.eventually(fmt.Sprintf("changes are a %d", status), func() bool { return c.Do("POST", "/port-speed", `{}`).Status == status })
	}
	if out := command("maintenance-file-on"); out != "" {
		t.Errorf("maintenance-file-on: got %s, want no output", out)
	}
	c.Do("DELETE", path, nil).Want(503) // each change looks at the file
	if out := command("maintenance-off"); !strings.Contains(out, "maintenance-file-off removes it") {
		t.Errorf("maintenance-off: got %s, want the file mentioned", out)
	}
	if out := command("maintenance-file-off"); out != "" {
		t.Errorf("maintenance-file-off: got %s, want no output", out)
	}
	awaitChange(422)
	if out := command("maintenance-on"); !strings.HasPrefix(out, "Maintenance is on.") {
		t.Errorf("maintenance-on: got %s, want it on", out)
	}
	awaitChange(503)
	c.Do("DELETE", path, nil).Want(503)
	t.Run("whole lines", func(t *testing.T) { testWholeLines(t, r) })
	if out := command("maintenance-off"); !strings.HasPrefix(out, "Maintenance is off.") {
		t.Errorf("maintenance-off: got %s, want it off", out)
	}
	awaitChange(422)
	c.Do("DELETE", path, nil).Want(200)

	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := r.exit(); err != nil {
		t.Fatalf("got the exit %v and\n%s\nwant a clean one", err, r.screen)
	}
	for name, pid := range children {
		if alive(pid) {
			t.Errorf("%s: got a process that still runs, want it ended", name)
		}
	}
	if _, err := os.Stat(filepath.Join(r.data, "run")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v for the folder of the run's secrets, want it removed", err)
	}
}

// TestDeadServiceEndsTheRun tests that split ends if one of its services ends.
func TestDeadServiceEndsTheRun(t *testing.T) {
	t.Parallel()
	requireProc(t)
	r := start(t)
	children := r.children()
	if err := syscall.Kill(children["network"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := r.exit(); err == nil || !strings.Contains(r.screen.String(), "the run is over: network ended by itself: signal: killed") {
		t.Errorf("got %v and\n%s\nwant an error and network named as what ended", err, r.screen)
	}
	r.awaitNoProcesses(children)
}

// TestKilledRunLeavesNothing tests that no process outlives a killed split.
func TestKilledRunLeavesNothing(t *testing.T) {
	t.Parallel()
	requireProc(t)
	r := start(t)
	children := r.children()
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.awaitNoProcesses(children)
}

// TestFleet shares one fleet among tests that kill a process or call one directly.
func TestFleet(t *testing.T) {
	t.Parallel()
	f, c := startFleet(t, datastores.Config{Data: t.TempDir()}, "IRONPLANE_ALLOWED_NETWORKS=127.0.0.1", "IRONPLANE_STORE="+t.TempDir())
	t.Run("unauthenticated", func(t *testing.T) { testUnauthenticated(t, f) })
	t.Run("a service dies and comes back", func(t *testing.T) { testServiceDiesAndComesBack(t, f, c.WithT(t)) })
	t.Run("an upload goes on after a kill", func(t *testing.T) { testUploadGoesOnAfterAKill(t, f, c.WithT(t)) })
	t.Run("an import goes on after a kill", func(t *testing.T) { testImportGoesOnAfterAKill(t, f, c.WithT(t)) })
}

// testServiceDiesAndComesBack kills a service. Its paths return 503 at once, the other services go on, and its
// paths work again after a start.
func testServiceDiesAndComesBack(t *testing.T, f *fleet, c *testkit.Client) {
	id := c.Do("POST", "/port-speed", `{"name": "fast", "speed": 1000}`).Want(200).ID()
	path := fmt.Sprintf("/port-speed/%d", id)
	for range 2 {
		kill(t, f.processes["network"])
		var durations []time.Duration
		for n := range 20 {
			began := time.Now()
			response := c.Do([]string{"GET", "DELETE"}[n%2], path, nil).Want(http.StatusServiceUnavailable)
			durations = append(durations, time.Since(began))
			if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err != nil || seconds < 1 {
				t.Fatalf("Retry-After: got %q, want at least 1", response.Header.Get("Retry-After"))
			}
			c.Do("GET", "/admin/1", nil).Want(200)
			c.Do("GET", "/auth/key/current", nil).Want(200)
		}
		if slices.Sort(durations); durations[len(durations)/2] > time.Second { // the median, because a busy machine delays some
			t.Errorf("the 503: got the times %v, want a median of at most %v", durations, time.Second)
		}
		if err := f.startService(t.Context(), "network"); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "the service works again", func() bool { return c.Do("GET", path, nil).Status == http.StatusOK })
	}
}

// kill kills a process and waits until it has ended.
func kill(t *testing.T, process *child.Child) {
	t.Helper()
	if err := syscall.Kill(process.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-process.Done()
}

// startFleet starts a fleet, whose processes tests may kill, and returns a client with the key of the first admin.
func startFleet(t *testing.T, config datastores.Config, environment ...string) (*fleet, *testkit.Client) {
	t.Helper()
	p := prepareFleet(t, programs, config, environment...)
	return p.fleet, p.start(t)
}

// prepared is a fleet that has not been started.
type prepared struct {
	*fleet
	masterKey secret.String
}

// prepareFleet starts Postgres and Redis, and prepares a fleet of the programs in a folder.
func prepareFleet(t *testing.T, programs string, config datastores.Config, environment ...string) *prepared {
	t.Helper()
	parts := &datastores.Servers{}
	t.Cleanup(func() {
		if err := parts.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	databases, err := parts.Databases(t.Context(), config, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	masterKey, err := parts.MasterKey(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	redis, err := parts.Redis(t.Context(), config, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	f, err := newFleet(t.TempDir(), programs, environment, databases, masterKey, redis)
	if err != nil {
		t.Fatal(err)
	}
	return &prepared{f, masterKey}
}

// start starts all processes, and returns a client with the key of the first admin.
func (p *prepared) start(t *testing.T) *testkit.Client {
	t.Helper()
	c := p.startProcesses(t)
	db := openDatabase(t, p.fleet, identity.Name)
	defer db.Close()
	key, _, err := admin.CreateFirst(t.Context(), db.DB)
	if err != nil {
		t.Fatal(err)
	}
	return c.WithKey(key.Reveal())
}

// startProcesses starts all processes, and returns a client of the gateway without a key.
func (p *prepared) startProcesses(t *testing.T) *testkit.Client {
	t.Helper()
	t.Cleanup(func() {
		if err := p.stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := p.startServices(t.Context()); err != nil {
		t.Fatal(err)
	}
	public, err := ports.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.startGateway(t.Context(), public[0]); err != nil {
		t.Fatal(err)
	}
	return testkit.ClientAt(t, "http://"+public[0])
}

// openDatabase connects to the schema of a service.
func openDatabase(t *testing.T, f *fleet, service string) *pool.Pool {
	t.Helper()
	url, err := os.ReadFile(f.file(service + ".database-url"))
	if err != nil {
		t.Fatal(err)
	}
	db, err := pool.Open(t.Context(), string(url), 1, pool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}
