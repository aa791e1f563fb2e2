package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/deploy/internal/datastores"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// TestFilesAreReloaded changes a database password in its file. A process reads the file again when the old
// password is refused, and opens new sessions after SIGHUP. Callers get 503 until the file has the new password.
func TestFilesAreReloaded(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	f, c := startFleet(t, datastores.Config{Data: data})
	url, err := os.ReadFile(data + "/database-url")
	if err != nil {
		t.Fatal(err)
	}
	admin, err := pgx.Connect(t.Context(), string(url))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(t.Context())
	file := f.file("network.database-url")
	own, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	role, _, _ := strings.Cut(strings.TrimPrefix(string(own), "postgres://"), ":")
	change := func(password string) string {
		t.Helper()
		if _, err := admin.Exec(t.Context(), fmt.Sprintf("ALTER ROLE %s PASSWORD '%s'", role, password)); err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(own), "@")
		return fmt.Sprintf("postgres://%s:%s@%s", role, password, rest)
	}
	sessions := func() (pids []int32) {
		t.Helper()
		if err := admin.QueryRow(t.Context(), "SELECT coalesce(array_agg(pid), '{}') FROM pg_stat_activity WHERE usename = $1", role).
			Scan(&pids); err != nil {
			t.Fatal(err)
		}
		return pids
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hasStatus := func(status int) func() bool {
		return func() bool { return list(c).Status == status }
	}

	second := change("second")
	if _, err := admin.Exec(t.Context(), "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = $1", role); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the old password is refused", hasStatus(http.StatusServiceUnavailable))
	write(second)
	testkit.Eventually(t, "the new password is used", hasStatus(http.StatusOK))

	write(change("third"))
	before := map[int32]bool{}
	for _, pid := range sessions() {
		before[pid] = true
	}
	if err := syscall.Kill(f.processes["network"].PID(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "all sessions are new", func() bool {
		if list(c).Status != http.StatusOK {
			return false
		}
		for _, pid := range sessions() {
			if before[pid] {
				return false
			}
		}
		return true
	})
	if err := syscall.Kill(f.processes["gateway"].PID(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	list(c).Want(http.StatusOK)
}

func list(c *testkit.Client) *testkit.Response { return c.Do("GET", "/group", nil) }
