package devservers

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fakeBin creates an installation whose initdb is a script. A shell writes the files. If this process wrote them while another
// test forks, their execution could fail (golang/go#22315).
func fakeBin(t *testing.T, major, initdb string) string {
	t.Helper()
	bin := t.TempDir()
	if err := os.Chmod(filepath.Dir(bin), 0o755); err != nil { // initdb runs as another user
		t.Fatal(err)
	}
	for name, script := range map[string]string{
		"postgres": "echo 'postgres (PostgreSQL) " + major + ".4 (Debian 1.2-3)'",
		"initdb":   initdb,
	} {
		write := exec.Command("sh", "-c", `cat >"$0" && chmod 755 "$0"`, filepath.Join(bin, name))
		write.Stdin = strings.NewReader("#!/bin/sh\n" + script + "\n")
		if out, err := write.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return bin
}

func TestNoPostgres(t *testing.T) {
	t.Parallel()
	_, err := StartPostgres(testContext(t), PostgresOptions{Dir: t.TempDir(), bins: []string{t.TempDir(), "/missing"}})
	if !errors.Is(err, ErrNoPostgres) {
		t.Fatalf("start: got %v, want %v", err, ErrNoPostgres)
	}
	for _, hint := range []string{
		"apt-get install postgresql", "make setup", "dnf install postgresql-server", "brew install postgresql@17", "DATABASE_URL",
	} {
		if !strings.Contains(err.Error(), hint) {
			t.Errorf("got %q, want a hint with %q", err, hint)
		}
	}
}

func TestFindPostgres(t *testing.T) {
	t.Parallel()
	bins := []string{"/missing", fakeBin(t, "97", ""), fakeBin(t, "98", ""), fakeBin(t, "99beta1;echo", "")}
	for major, want := range map[string]string{"": bins[1], "97": bins[1], "98": bins[2], "99": bins[3]} {
		found, err := findPostgres(testContext(t), bins, major)
		if err != nil || found.bin != want {
			t.Errorf("major version %q: got %v, %v, want %s", major, found, err, want)
		}
	}
	broken := t.TempDir()
	for _, name := range []string{"postgres", "initdb"} {
		if err := os.WriteFile(filepath.Join(broken, name), []byte("no program"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := findPostgres(testContext(t), []string{broken}, ""); !errors.Is(err, ErrNoPostgres) || !strings.Contains(err.Error(), broken) {
		t.Errorf("a broken installation: got %v, want %v with the folder %s", err, ErrNoPostgres, broken)
	}
}

func TestVersionIn(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]float64{
		"/usr/lib/postgresql/9.6/bin":         9.6,
		"/usr/lib/postgresql/15/bin":          15,
		"/usr/lib64/pgsql/postgresql-16/bin":  16,
		"/opt/homebrew/opt/postgresql@17/bin": 17,
		"/opt/homebrew/opt/postgresql/bin":    0,
	} {
		if got := versionIn(path); got != want {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
}
