package devservers

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// testTimeout bounds each step of a test. It is long, because a busy machine may be slow.
const testTimeout = 5 * time.Minute

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

func startPostgres(t *testing.T, o PostgresOptions) *Postgres {
	t.Helper()
	p, err := StartPostgres(testContext(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop(testContext(t)) })
	return p
}

func stopPostgres(t *testing.T, p *Postgres) {
	t.Helper()
	if err := p.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
}

func query[T any](t *testing.T, url, sql string) T {
	t.Helper()
	conn, err := pgx.Connect(testContext(t), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(testContext(t))
	rows, err := conn.Query(testContext(t), sql)
	if err != nil {
		t.Fatal(err)
	}
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// isLocked reports whether a process of a server runs: each of them holds the lock.
func isLocked(t *testing.T, path string) bool {
	t.Helper()
	file, err := lock(path)
	if err == nil {
		file.Close()
	} else if !errors.Is(err, syscall.EWOULDBLOCK) {
		t.Fatal(err)
	}
	return err != nil
}

// awaitUnlocked waits until no process holds the lock. A process that another test is forking may hold it briefly.
func awaitUnlocked(t *testing.T, serverLock string) {
	t.Helper()
	eventually(t, "the server has no process", func() bool { return !isLocked(t, serverLock) })
}

func eventually(t *testing.T, condition string, holds func() bool) {
	t.Helper()
	ctx := testContext(t)
	for !holds() {
		select {
		case <-ctx.Done():
			t.Fatalf("got a timeout, want %s", condition)
		case <-time.After(pollInterval):
		}
	}
}

func assertMode(t *testing.T, path string, want os.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != want {
		t.Errorf("%s: got mode %o, want %o", path, info.Mode().Perm(), want)
	}
}

func TestFirstStartAndRestart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "missing folder")
	p := startPostgres(t, PostgresOptions{Dir: dir})
	for setting, want := range map[string]string{
		"fsync": "off", "max_connections": "200", "TimeZone": "UTC", "lc_messages": "C",
		"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "server_encoding": "UTF8",
	} {
		if got := query[string](t, p.URL("postgres"), "SHOW "+setting); got != want {
			t.Errorf("%s: got %q, want %q", setting, got, want)
		}
	}
	assertMode(t, filepath.Join(dir, "password"), 0o600)
	assertMode(t, filepath.Join(dir, "postgres.log"), 0o600)
	assertMode(t, filepath.Join(dir, "data"), 0o700)
	if !isLocked(t, p.lock.server) {
		t.Error("got no lock while the server runs, want one")
	}
	if group, err := syscall.Getpgid(p.child.PID()); err != nil || group == syscall.Getpgrp() {
		t.Errorf("got the process group %d, %v, want another one than the test's %d", group, err, syscall.Getpgrp())
	}

	if err := execute(t, p.URL("postgres"), "CREATE TABLE kept AS SELECT 42 AS answer"); err != nil {
		t.Fatal(err)
	}
	stopPostgres(t, p)
	select {
	case <-p.Done():
	default:
		t.Error("got Done open after Stop, want it closed")
	}
	if err := p.Err(); err != nil {
		t.Errorf("Err after Stop: %v", err)
	}
	awaitUnlocked(t, p.lock.server)

	restarted := startPostgres(t, PostgresOptions{Dir: dir, Durable: true, MaxConnections: 17})
	if got := query[int](t, restarted.URL("postgres"), "SELECT answer FROM kept"); got != 42 {
		t.Errorf("after a restart: got the row %d, want 42", got)
	}
	for setting, want := range map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "max_connections": "17",
	} {
		if got := query[string](t, restarted.URL("postgres"), "SHOW "+setting); got != want {
			t.Errorf("%s: got %q, want %q", setting, got, want)
		}
	}
}

func execute(t *testing.T, url, sql string) error {
	t.Helper()
	conn, err := pgx.Connect(testContext(t), url)
	if err != nil {
		return err
	}
	defer conn.Close(testContext(t))
	_, err = conn.Exec(testContext(t), sql)
	return err
}

func TestInvalidPasswordIsRefused(t *testing.T) {
	t.Parallel()
	p := startPostgres(t, PostgresOptions{Dir: t.TempDir()})
	u, err := url.Parse(p.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	for _, password := range []string{"wrong", ""} {
		u.User = url.UserPassword(superuser, password)
		err := execute(t, u.String(), "SELECT 1")
		if refused, ok := errors.AsType[*pgconn.PgError](err); !ok || !strings.HasPrefix(refused.Code, "28") {
			t.Errorf("password %q: got %v, want an error of class 28", password, err)
		}
	}
}

func TestStopEndsSessions(t *testing.T) {
	t.Parallel()
	p := startPostgres(t, PostgresOptions{Dir: t.TempDir()})
	sleeping := make(chan error)
	go func() { sleeping <- execute(t, p.URL("postgres"), "SELECT pg_sleep(3600)") }()
	eventually(t, "a session sleeps", func() bool {
		return query[int](t, p.URL("postgres"), "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == 1
	})
	stopPostgres(t, p)
	if err := <-sleeping; err == nil {
		t.Error("got no error of the sleeping session, want it ended")
	}
	awaitUnlocked(t, p.lock.server)
	stopPostgres(t, p) // a second Stop succeeds
}

func TestSecondStartIsRefused(t *testing.T) {
	t.Parallel()
	p := startPostgres(t, PostgresOptions{Dir: t.TempDir()})
	_, err := StartPostgres(testContext(t), PostgresOptions{Dir: p.dir})
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "in use by process "+strconv.Itoa(os.Getpid())) {
		t.Errorf("second start: got %v, want %v by process %d", err, ErrInUse, os.Getpid())
	}
	query[int](t, p.URL("postgres"), "SELECT 1")
}

// Postgres, which does not run as root, starts below a folder that only root may read.
func TestUnreadableParent(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can run Postgres as another user")
	}
	private := filepath.Join(t.TempDir(), "private")
	if err := os.Mkdir(private, 0o700); err != nil {
		t.Fatal(err)
	}
	p := startPostgres(t, PostgresOptions{Dir: filepath.Join(private, "postgres")})
	info, err := os.Stat(p.dataFolder())
	if err != nil {
		t.Fatal(err)
	}
	if info.Sys().(*syscall.Stat_t).Uid == 0 {
		t.Error("got a data folder of root, want one of another user")
	}
}

func TestOtherMajorVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "data", "PG_VERSION"), []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	installed, err := findPostgres(testContext(t), usualBins(testContext(t)), "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = StartPostgres(testContext(t), PostgresOptions{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "Postgres 9 ") || !strings.Contains(err.Error(), installed.major+" ("+installed.bin) {
		t.Errorf("start: got %v, want an error that names Postgres 9 and %s (%s", err, installed.major, installed.bin)
	}
}

func TestForeignDataFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := StartPostgres(
		testContext(t),
		PostgresOptions{Dir: dir},
	); err == nil ||
		!strings.Contains(err.Error(), "is not a data folder of Postgres") {
		t.Errorf("start: got %v, want an error that says is not a data folder of Postgres", err)
	}
}

func TestLostPasswordFile(t *testing.T) {
	t.Parallel()
	p := startPostgres(t, PostgresOptions{Dir: t.TempDir()})
	stopPostgres(t, p)
	if err := os.Remove(filepath.Join(p.dir, "password")); err != nil {
		t.Fatal(err)
	}
	if _, err := StartPostgres(testContext(t), PostgresOptions{Dir: p.dir}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("start: got %v, want %v", err, os.ErrNotExist)
	}
}

func TestCancelledStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, after := range []time.Duration{0, 300 * time.Millisecond} { // the second one most likely ends during initdb
		ctx, cancel := context.WithTimeout(context.Background(), after)
		p, err := StartPostgres(ctx, PostgresOptions{Dir: dir})
		cancel()
		if err == nil {
			stopPostgres(t, p)
			continue
		}
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrNoPostgres) {
			t.Errorf("start: got %v, want %v", err, context.DeadlineExceeded)
		}
	}
	startPostgres(t, PostgresOptions{Dir: dir})
}

func TestFailedInitdbLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bin := fakeBin(t, "15", "echo it broke >&2; exit 1")
	_, err := StartPostgres(testContext(t), PostgresOptions{Dir: dir, bins: []string{bin}})
	if err == nil || !strings.Contains(err.Error(), "it broke") {
		t.Errorf("start: got %v, want an error that says it broke", err)
	}
	for _, name := range []string{"data", "data.new", "password.initdb"} {
		if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: got %v, want %v", name, err, os.ErrNotExist)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "data.new", "global"), 0o700); err != nil { // as a kill -9 leaves it
		t.Fatal(err)
	}
	startPostgres(t, PostgresOptions{Dir: dir})
}

// If the system lacks the locale C.UTF-8, the database uses C.
func TestUnknownLocale(t *testing.T) {
	t.Parallel()
	installed, err := findPostgres(testContext(t), usualBins(testContext(t)), "")
	if err != nil {
		t.Fatal(err)
	}
	bin := fakeBin(t, installed.major, `case "$*" in *--locale=C.UTF-8*) echo 'initdb: error: invalid locale name "C.UTF-8"' >&2; exit 1;; esac
exec `+installed.bin+`/initdb "$@"`)
	dir := t.TempDir()
	p := &Postgres{dir: dir, password: newPassword()}
	if err := p.createData(testContext(t), installation{bin: bin, major: installed.major}, false); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "password"), []byte(p.password), 0o600); err != nil {
		t.Fatal(err)
	}
	started := startPostgres(t, PostgresOptions{Dir: dir})
	if got := query[string](t, started.URL("postgres"), "SELECT datcollate FROM pg_database WHERE datname = 'template1'"); got != "C" {
		t.Errorf("got the collation %q, want C", got)
	}
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	p := startPostgres(t, PostgresOptions{Dir: t.TempDir()})
	stopPostgres(t, p)
	found, err := findPostgres(testContext(t), usualBins(testContext(t)), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.serve(testContext(t), found, port, PostgresOptions{}); !errors.Is(err, errPortInUse) {
		t.Errorf("serve on a used port: got %v, want %v", err, errPortInUse)
	}
	awaitUnlocked(t, p.lock.server)

	var ports []int
	err = onFreePort(func(port int) error {
		if ports = append(ports, port); len(ports) < 3 {
			return errPortInUse
		}
		return nil
	})
	if err != nil || len(ports) != 3 {
		t.Errorf("got the ports %v, %v, want three and no error", ports, err)
	}
}

func TestServerDies(t *testing.T) {
	t.Parallel()
	p := startPostgres(t, PostgresOptions{Dir: t.TempDir(), Durable: true})
	if err := execute(t, p.URL("postgres"), "CREATE TABLE kept AS SELECT 42 AS answer"); err != nil {
		t.Fatal(err)
	}
	if err := p.Err(); err != nil {
		t.Errorf("Err of a running server: %v", err)
	}
	if err := syscall.Kill(p.child.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if err := p.Err(); err == nil || !strings.Contains(err.Error(), "killed") || !strings.Contains(err.Error(), p.logFile()) {
		t.Errorf("Err: got %v, want an error that says killed and names %s", err, p.logFile())
	}
	stopPostgres(t, p)
	restarted := startPostgres(t, PostgresOptions{Dir: p.dir, Durable: true})
	if got := query[int](t, restarted.URL("postgres"), "SELECT answer FROM kept"); got != 42 {
		t.Errorf("got the row %d, want 42", got)
	}
}

// A postmaster.pid with the PID of another process prevents a start, unless our own server had this PID.
func TestRecycledPID(t *testing.T) {
	t.Parallel()
	p := startPostgres(t, PostgresOptions{Dir: t.TempDir()})
	if err := syscall.Kill(p.child.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	stopPostgres(t, p)

	runAs, err := findAccount("postgres", "nobody")
	if err != nil {
		t.Fatal(err)
	}
	other := exec.Command("sleep", "3600")
	other.Dir = "/"
	other.SysProcAttr = &syscall.SysProcAttr{Credential: runAs}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer other.Wait()
	defer other.Process.Kill()
	old, err := os.ReadFile(p.pidFile())
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(old), "\n")
	pid := strconv.Itoa(other.Process.Pid)
	if err := os.WriteFile(p.pidFile(), []byte(pid+"\n"+rest), 0o600); err != nil {
		t.Fatal(err)
	}

	// An unknown process may be a Postgres that was started by hand.
	_, err = StartPostgres(testContext(t), PostgresOptions{Dir: p.dir})
	if err == nil || !strings.Contains(err.Error(), "PID "+pid) {
		t.Errorf("start beside another process's PID: got %v, want an error that names PID %s", err, pid)
	}
	// The lock file says that our server, which has ended, had this PID.
	if err := os.WriteFile(p.lock.server, []byte(pid), 0o600); err != nil {
		t.Fatal(err)
	}
	startPostgres(t, PostgresOptions{Dir: p.dir})
}

func TestLogIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := filepath.Join(dir, "postgres.log")
	if err := os.WriteFile(log, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(log, maxLog+1); err != nil {
		t.Fatal(err)
	}
	startPostgres(t, PostgresOptions{Dir: dir})
	info, err := os.Stat(log)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() == 0 || info.Size() > maxLog {
		t.Errorf("got a log of %d bytes, want 1 to %d", info.Size(), maxLog)
	}
}

func TestMissingExtension(t *testing.T) {
	t.Parallel()
	p := startPostgres(t, PostgresOptions{Dir: t.TempDir()})
	conn, err := pgx.Connect(testContext(t), p.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(testContext(t))
	err = requireExtensions(testContext(t), conn, "btree_gist", "no_such_extension")
	if err == nil || !strings.Contains(err.Error(), "lacks the extension no_such_extension:") ||
		!strings.Contains(err.Error(), "postgresql-contrib") {
		t.Errorf("requireExtensions: got %v, want an error that names no_such_extension and postgresql-contrib", err)
	}
}
