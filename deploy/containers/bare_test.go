//go:build containers

package containers

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// bareImage has Go and make, but no PostgreSQL.
const bareImage = "golang:1.26-bookworm"

// runInContainer runs a command in a copy of the repository, in a new container with the modules and the build cache of this
// machine.
func runInContainer(t *testing.T, user, command string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), upTimeout)
	defer cancel()
	source, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	arguments := []string{
		"run", "--rm", "--user", user, "--volume", source + ":/source:ro", "--env", "HOME=/tmp/home",
		"--env", "GOMODCACHE=" + goEnv(t, "GOMODCACHE"), "--env", "GOCACHE=" + goEnv(t, "GOCACHE"),
	}
	for _, folder := range []string{goEnv(t, "GOMODCACHE"), goEnv(t, "GOCACHE")} {
		arguments = append(arguments, "--volume", folder+":"+folder)
	}
	script := "mkdir -p /tmp/home /tmp/work && cd /source && tar -c --exclude=./bin --exclude=./data --exclude=./.git . | tar -x -C " +
		"/tmp/work && cd /tmp/work && " + command
	out, err := exec.CommandContext(ctx, "docker", append(arguments, bareImage, "sh", "-c", script)...).CombinedOutput()
	return string(out), err
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// TestFirstHourAsRoot shows that make run and make test install PostgreSQL for root, on a machine with only Go and make.
func TestFirstHourAsRoot(t *testing.T) {
	t.Parallel()
	out, err := runInContainer(t, "0", `make test TESTED=./pkg/jobs > /tmp/test.log 2>&1 || { tail -n 50 /tmp/test.log; exit 1; }
		make run > /tmp/run.log 2>&1 &
		for second in $(seq 300); do
			grep -q 'ready at' /tmp/run.log && break
			sleep 1
		done
		cat /tmp/run.log`) // the container ends with its script
	if !strings.Contains(out, "ready at http://") {
		t.Errorf("got %v and\n%s\nwant a product that is ready", err, out)
	}
}

// TestFirstHourAsUser shows that another user gets the command that installs PostgreSQL.
func TestFirstHourAsUser(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"run", "test"} {
		out, err := runInContainer(t, "65534", "make "+target)
		if err == nil || !strings.Contains(out, "PostgreSQL is missing. Install it with: sudo make setup") {
			t.Errorf("make %s: got %v and\n%s\nwant the command that installs PostgreSQL", target, err, out)
		}
	}
}
