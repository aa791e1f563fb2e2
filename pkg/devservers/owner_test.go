package devservers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// ownerFolder is a variable. With it, the test binary runs servers in that folder, so that a test can kill their owner.
const ownerFolder = "DEVSERVERS_TEST_OWNER_FOLDER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(ownerFolder); dir != "" {
		if err := runServers(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// runServers runs Postgres and Redis in a folder until its standard input ends.
func runServers(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	p, err := StartPostgres(ctx, PostgresOptions{Dir: dir, Durable: true})
	if err != nil {
		return err
	}
	r, err := StartRedis(ctx, RedisOptions{Dir: dir})
	if err != nil {
		return err
	}
	fmt.Println(p.URL("postgres"), r.URL())
	_, err = io.Copy(io.Discard, os.Stdin) // until the test ends
	return err
}

// The servers of a killed process end, and another process can start servers in the folder.
func TestKilledOwner(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), ownerFolder+"="+dir)
	owner.Stderr = os.Stderr
	if _, err := owner.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	defer owner.Wait()
	defer owner.Process.Kill()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	postgresURL, redisURL, _ := strings.Cut(strings.TrimSpace(line), " ")

	_, err = StartPostgres(testContext(t), PostgresOptions{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("in use by process %d", owner.Process.Pid)) {
		t.Errorf("start beside the owner: got %v, want an error that says in use by process %d", err, owner.Process.Pid)
	}
	if err := execute(t, postgresURL, "CREATE TABLE kept AS SELECT 42 AS answer"); err != nil {
		t.Fatal(err)
	}
	sleeping := make(chan error)
	go func() { sleeping <- execute(t, postgresURL, "SELECT pg_sleep(3600)") }()
	eventually(t, "a session sleeps", func() bool {
		return query[int](t, postgresURL, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == 1
	})
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait() // its error says only that it was killed; then it no longer locks the folder

	if runtime.GOOS == "linux" {
		for _, name := range []string{"postgres.server", "redis.server"} {
			eventually(t, name+" is unlocked", func() bool { return !isLocked(t, filepath.Join(dir, name)) })
		}
		if err := <-sleeping; err == nil {
			t.Error("got no error of the sleeping session, want it ended")
		}
	}
	p := startPostgres(t, PostgresOptions{Dir: dir, Durable: true})
	if got := query[int](t, p.URL("postgres"), "SELECT answer FROM kept"); got != 42 {
		t.Errorf("got the row %d, want 42", got)
	}
	earlier, err := url.Parse(redisURL)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := earlier.User.Password()
	if r := startRedis(t, RedisOptions{Dir: dir}); r.password == password || password == "" {
		t.Errorf("got the password %q in both runs, want another one in each", password)
	}
}

// A start waits until a server process that outlived its owner has ended.
func TestStartWaitsForOrphan(t *testing.T) {
	t.Parallel()
	p := startPostgres(t, PostgresOptions{Dir: t.TempDir()})
	stopPostgres(t, p)
	held, err := lock(p.lock.server)
	if err != nil {
		t.Fatal(err)
	}
	ended := filepath.Join(t.TempDir(), "ended")
	orphan := exec.Command("sh", "-c", `trap "" INT; echo started; sleep 0.5; : >"$0"`, ended)
	orphan.ExtraFiles = []*os.File{held}
	out, err := orphan.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := orphan.Start(); err != nil {
		t.Fatal(err)
	}
	defer orphan.Wait()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := writePID(held, orphan.Process.Pid); err != nil {
		t.Fatal(err)
	}
	held.Close()

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _, err = p.lock.lockServer(ctx)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", orphan.Process.Pid)) {
		t.Errorf("lock beside the orphan: got %v, want %v that names process %d", err, context.Canceled, orphan.Process.Pid)
	}
	startPostgres(t, PostgresOptions{Dir: p.dir})
	if _, err := os.Stat(ended); err != nil {
		t.Errorf("got %v, want the file that the orphan wrote at its end", err)
	}
}
