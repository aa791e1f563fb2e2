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

// document says how to back up and restore with containers.
const document = root + "/docs/operate/backup.md"

// steps runs blocks of the document in a folder of its own.
type steps struct {
	*testing.T
	folder string
}

// do runs a block. The project has another name here, and its images are built already.
func (s *steps) do(name string, environment ...string) string {
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
	said, err := cmd.CombinedOutput()
	if err != nil {
		s.Fatalf("%s: %v\n%s", name, err, said)
	}
	return string(said)
}

// client reaches a gateway, which has another address after each start.
func (s *steps) client() *testkit.Client {
	s.Helper()
	return testkit.ClientAt(s, "http://"+net.JoinHostPort(ip(s.T, oneOf(s.T, principal.Gateway)), "8080")).WithKey(installed.key)
}

func (s *steps) makeGroup(name string) (id int64) {
	s.Helper()
	return s.client().Do(http.MethodPost, "/group", map[string]any{"name": name}).Want(http.StatusOK).ID()
}

// has tells how many there are of a list.
func (s *steps) has(path string) int {
	s.Helper()
	return len(testkit.Decode[[]json.RawMessage](s.client().Do(http.MethodGet, path, nil).Want(http.StatusOK)))
}

// By the words of the document, one service's schema is put back into the installation, and all of it on a new machine.
// It goes last: the installation is another one afterwards.
func TestRestore(t *testing.T) {
	s := &steps{t, t.TempDir()}
	kept := s.makeGroup("kept")
	s.do("containers backup")
	lost := s.makeGroup("lost")
	testkit.Eventually(t, "it is logged", func() bool { return s.has("/log?type=group.created&q=lost") == 1 })

	said := s.do("containers restore", "SERVICES=network")
	if !strings.Contains(said, "network is reconciled") || strings.Contains(said, "pxe is reconciled") ||
		!strings.Contains(said, "IP group lost created.") {
		t.Errorf("got %s, want network alone reconciled, and the creation of the lost group named", said)
	}
	if s.has("/group?name=kept") != 1 || s.has("/group?name=lost") != 0 {
		t.Error("got other groups than in the backup, want kept without lost")
	}
	if id := s.makeGroup("after"); id <= lost || id <= kept {
		t.Errorf("got the id %d, want one above %d and %d", id, kept, lost)
	}

	if err := down(); err != nil {
		t.Fatal(err)
	}
	s.do("containers secrets")
	if said := s.do("containers restore"); !strings.Contains(said, "system is reconciled") {
		t.Errorf("got %s, want %q in it", said, "system is reconciled")
	}
	if s.has("/group?name=kept") != 1 || s.has("/group?name=after") != 0 {
		t.Error("got other groups than in the backup, want kept without after")
	}
	s.makeGroup("on a new machine")
	testkit.Eventually(t, "it is logged", func() bool { return s.has("/log?type=group.created&q=machine") == 1 })
	if said, err := compose(
		t.Context(),
		"exec",
		"-T",
		"system",
		"/ironplane",
		"verify",
	); err != nil ||
		!strings.Contains(said, "is logged exactly once") {
		t.Errorf("verify: got %v and %s, want every change logged exactly once", err, said)
	}
}
