//go:build containers

package containers

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// document is the page that describes backup and restore with containers.
const document = root + "/docs/operate/backup.md"

// page runs blocks of the document in a temporary folder.
type page struct {
	*testing.T
	folder string
}

// runBlock runs a block of the page. It replaces the project's name, and uses the images that are already built.
func (s *page) runBlock(name string, environment ...string) string {
	s.Helper()
	compose, err := filepath.Abs(root + "/docker-compose.yml")
	if err != nil {
		s.Fatal(err)
	}
	script := strings.NewReplacer("ironplane_secrets-", project+"_secrets-", "up --build", "up --no-build").
		Replace(testkit.CodeBlock(s, document, name))
	ctx, cancel := context.WithTimeout(s.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-e", "-c", script)
	cmd.Dir = s.folder
	cmd.Env = append(
		os.Environ(),
		append(environment, "COMPOSE_FILE="+compose, "COMPOSE_PROJECT_NAME="+project, "IRONPLANE_PUBLISH=127.0.0.1:0")...)
	output, err := cmd.CombinedOutput()
	if err != nil {
		s.Fatalf("%s: %v\n%s", name, err, output)
	}
	return string(output)
}

// client returns a client of a gateway. The gateway's address changes with each start.
func (s *page) client() *testkit.Client {
	s.Helper()
	return testkit.ClientAt(s, "http://"+net.JoinHostPort(ip(s.T, findContainer(s.T, principal.Gateway)), "8080")).WithKey(installation.key)
}

func (s *page) createGroup(name string) (id int64) {
	s.Helper()
	return s.client().Do(http.MethodPost, "/group", map[string]any{"name": name}).Want(http.StatusOK).ID()
}

// count returns the number of items in a list.
func (s *page) count(path string) int {
	s.Helper()
	return len(testkit.Decode[[]json.RawMessage](s.client().Do(http.MethodGet, path, nil).Want(http.StatusOK)))
}

// TestRestore restores one service's schema into the installation, and then everything on a new machine, with the commands of
// the page. It must run last, since it replaces the installation.
func TestRestore(t *testing.T) {
	s := &page{t, t.TempDir()}
	kept := s.createGroup("kept")
	s.runBlock("containers backup")
	lost := s.createGroup("lost")
	testkit.Eventually(t, "the log has the group", func() bool { return s.count("/log?type=group.created&q=lost") == 1 })

	output := s.runBlock("containers restore", "SERVICES=network")
	if !strings.Contains(output, "network is reconciled") || strings.Contains(output, "pxe is reconciled") ||
		!strings.Contains(output, "IP group lost was created.") {
		t.Errorf("got %s, want network alone reconciled, and the creation of the lost group named", output)
	}
	if s.count("/group?name=kept") != 1 || s.count("/group?name=lost") != 0 {
		t.Error("got other groups than in the backup, want kept without lost")
	}
	if id := s.createGroup("after"); id <= lost || id <= kept {
		t.Errorf("got the id %d, want one above %d and %d", id, kept, lost)
	}

	if err := down(); err != nil {
		t.Fatal(err)
	}
	s.runBlock("containers secrets")
	if output := s.runBlock("containers restore"); !strings.Contains(output, "system is reconciled") {
		t.Errorf("got %s, want %q in it", output, "system is reconciled")
	}
	if s.count("/group?name=kept") != 1 || s.count("/group?name=after") != 0 {
		t.Error("got other groups than in the backup, want kept without after")
	}
	s.createGroup("on a new machine")
	testkit.Eventually(t, "the log has the group", func() bool { return s.count("/log?type=group.created&q=machine") == 1 })
	if output, err := compose(
		t.Context(),
		"exec",
		"-T",
		"system",
		"/ironplane",
		"verify",
	); err != nil ||
		!strings.Contains(output, "is logged exactly once") {
		t.Errorf("verify: got %v and %s, want every change logged exactly once", err, output)
	}
}
