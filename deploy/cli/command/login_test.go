package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/cli/config"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/secondfactor"
	"github.com/ironplane/ironplane/services/identity"
)

// TestLogin stores logins, uses them and forgets them.
func TestLogin(t *testing.T) {
	t.Parallel()
	p, _ := producttest.Shared(t)
	s := start(t)
	key := s.env["IRONPLANE_KEY"]
	s.env["IRONPLANE_URL"], s.env["IRONPLANE_KEY"] = "", ""
	s.run("entity", "list").fails(3, "nobody is logged in")
	s.input = "ip_wrong\n"
	s.run("login", s.admin.URL).fails(3, "401")
	s.input = key + "\n"
	s.ok("login", s.admin.URL, "--name", "first")
	file := filepath.Join(s.env["XDG_CONFIG_HOME"], "ironplane", "logins.json")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v, want a file with mode 0600", info, err)
	}
	s.wants("admin\n", "whoami", "--jq", ".owner.name")
	s.env["IRONPLANE_KEY"] = "ip_other"
	s.run("whoami").fails(3, "IRONPLANE_URL is not")
	s.env["IRONPLANE_KEY"] = ""

	// By password, and then by password and second factor.
	s.input = "a long walk in the snow"
	s.ok("admin", "create", "two@example.com", "--username", "two", "--password", "-")
	s.ok("login", s.admin.URL, "--name", "two", "--username", "two")
	s.wants("two\n", "whoami", "--jq", ".owner.name")
	session := s.admin.WithKey(readKey(t, file, "two"))
	app, _ := secondfactor.NewVerifiedApp(t, p.Databases[identity.Name], session)
	s.input = "a long walk in the snow\n000000\n"
	s.run("login", s.admin.URL, "--name", "two", "--username", "two").fails(8, "/token")
	s.input = "a long walk in the snow\n" + app.Code() + "\n"
	s.ok("login", s.admin.URL, "--name", "two", "--username", "two")
	s.wants("two\n", "whoami", "--jq", ".owner.name")
	s.wants("admin\n", "whoami", "--jq", ".owner.name", "--context", "first")
	s.wants("NAME   CURRENT\nfirst  false\ntwo    true\n", "context", "list", "--columns", "name,current")

	ended := s.admin.WithKey(readKey(t, file, "two"))
	s.ok("logout")
	testkit.Eventually(t, "the session has ended", func() bool { return ended.Do("GET", "/admin", nil).Status == 401 })
	s.run("whoami").fails(3, "nobody is logged in")
	s.run("context", "use", "two").fails(3, `no login "two"`)
	s.ok("context", "use", "first")
	s.ok("logout", "first")
	s.admin.Do("GET", "/auth/key/current", nil).Want(200) // a key is not a session
	s.wants("[]\n", "context", "list", "-o", "json")
}

func readKey(t testing.TB, path, name string) string {
	t.Helper()
	file, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return file.Contexts[name].Key
}

// TestCompletion offers the names of items.
func TestCompletion(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.ok("client", "create", "completed@example.com", "--first", "Zoe", "--last", "Completed")
	if got := s.ok("__complete", "client", "get", "zoe"); !strings.HasPrefix(got, "Zoe Completed\tclient ") {
		t.Errorf("got %q, want the client's name", got)
	}
	if got := s.ok("__complete", "entity", "list", "--owner", "completed@"); !strings.HasPrefix(got, "completed@example.com\t") {
		t.Errorf("got %q, want the client's address", got)
	}
	if got := s.ok("__complete", "entity", "list", "--status", ""); !strings.HasPrefix(got, "available\nassigned\n") {
		t.Errorf("got %q, want the values", got)
	}
}
