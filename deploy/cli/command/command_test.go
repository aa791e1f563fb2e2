package command

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/client"
	"github.com/ironplane/ironplane/pkg/client/operations"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// asProgram is the variable that makes the test's program the command line itself, for tests in a shell.
const asProgram = "IRONPLANE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(Run(context.Background(), os.Args[1:], System()))
	}
	testkit.Main(m)
}

// shell runs commands against a product.
type shell struct {
	t     testing.TB
	admin *testkit.Client
	env   map[string]string
	input string
}

// start returns a shell with the first admin's key, on the product that the tests of the package share.
func start(t testing.TB) *shell {
	t.Helper()
	_, admin := producttest.Shared(t)
	return &shell{t: t, admin: admin, env: map[string]string{
		"IRONPLANE_URL": admin.URL, "IRONPLANE_KEY": admin.Key, "XDG_CONFIG_HOME": t.TempDir(),
	}}
}

// result is how a command ended.
type result struct {
	t        testing.TB
	code     int
	out, err string
}

func (s *shell) run(args ...string) *result {
	s.t.Helper()
	var out, stderr bytes.Buffer
	p := &Program{
		In: strings.NewReader(s.input), Out: &out, Err: &stderr, Getenv: func(name string) string { return s.env[name] },
		options: []client.Option{client.WithRetries(0)},
	}
	code := Run(s.t.Context(), args, p)
	if text := stderr.String(); s.env["IRONPLANE_KEY"] != "" && strings.Contains(text, s.env["IRONPLANE_KEY"]) {
		s.t.Errorf("%v: standard error shows the key", args)
	}
	return &result{s.t, code, out.String(), stderr.String()}
}

// ok fails the test if the command did, and returns what it printed.
func (s *shell) ok(args ...string) string {
	s.t.Helper()
	r := s.run(args...)
	if r.code != 0 {
		s.t.Fatalf("%v: got exit code %d, want 0: %s", args, r.code, r.err)
	}
	return r.out
}

// fails fails the test if the command's exit code or error is another one.
func (r *result) fails(code int, parts ...string) {
	r.t.Helper()
	if r.code != code {
		r.t.Fatalf("got exit code %d, want %d: %s%s", r.code, code, r.out, r.err)
	}
	for _, part := range parts {
		if !strings.Contains(r.err, part) {
			r.t.Fatalf("got the error %q, want one with %q", r.err, part)
		}
	}
}

func (s *shell) wants(want string, args ...string) {
	s.t.Helper()
	if got := s.ok(args...); got != want {
		s.t.Fatalf("%v: got\n%s\nwant\n%s", args, got, want)
	}
}

// id runs a command that creates an item, and returns its id.
func (s *shell) id(args ...string) string {
	s.t.Helper()
	return strings.TrimSpace(s.ok(append(args, "--jq", ".id")...))
}

// TestCommands says that each operation has a command of its own, with a flag of its own for each parameter and member.
func TestCommands(t *testing.T) {
	t.Parallel()
	root := newRoot(&Program{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard, Getenv: os.Getenv})
	table := operations.All()
	if len(table.Operations) < 200 {
		t.Fatalf("got %d operations, want at least 200", len(table.Operations))
	}
	for _, o := range table.Operations {
		command, _, err := root.Find([]string{o.Noun, o.Verb})
		if err != nil || command.Annotations["operation"] != o.ID {
			t.Errorf("%s %s: got the command of %s, want %s: %v", o.Noun, o.Verb, command.Annotations["operation"], o.ID, err)
			continue
		}
		seen := map[string]string{}
		for _, f := range slices.Concat(queryFlags(o), bodyFlags(o)) {
			if other, ok := seen[f.flag]; ok {
				t.Errorf("%s: %s and %s have the same flag --%s", o.ID, other, f.Name, f.flag)
			}
			seen[f.flag] = f.Name
			if v, ok := command.Flag(f.flag).Value.(*value); !ok || v.Name != f.Name {
				t.Errorf("%s: the flag --%s is not that of %s", o.ID, f.flag, f.Name)
			}
		}
		for _, p := range slices.Concat(o.Path, o.Query, table.Bodies[o.Body]) {
			if p.Kind == "ref" && p.Of == "" {
				t.Errorf("%s: it is not known what %s refers to: add it to target in deploy/sdk", o.ID, p.Name)
			}
		}
		for name := range customs {
			if table.Find(name) == nil {
				t.Errorf("customs has %s, which is no operation", name)
			}
		}
	}
}

// TestPrintedCommands says that the command line's parser accepts each command in the form in which the console prints it.
func TestPrintedCommands(t *testing.T) {
	t.Parallel()
	all := Commands()
	for _, o := range operations.All().Operations {
		printed, ok := all[o.ID]
		if ok == (o.RawBody != "") {
			t.Errorf("%s: got a command: %v, want one exactly for bodies of JSON", o.ID, ok)
		}
		if !ok {
			continue
		}
		args := []string{printed.Noun, printed.Verb}
		for range o.Path {
			args = append(args, "1")
		}
		if o.Several > 0 {
			args = append(args, "2")
		}
		if o.Body != "" {
			args = append(args, "--json", `{"name": "it's"}`)
		}
		if printed.IfMatch {
			args = append(args, "--if-match", `"1"`)
		}
		for _, flag := range printed.Secrets {
			args = append(args, "--"+flag, "-")
		}
		root := newRoot(&Program{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard, Getenv: os.Getenv})
		command, rest, err := root.Find(args)
		if err != nil || command.Annotations["operation"] != o.ID {
			t.Errorf("%v: got the command of %q, want %s: %v", args, command.Annotations["operation"], o.ID, err)
			continue
		}
		if err := command.ParseFlags(rest); err != nil {
			t.Errorf("%v: %v", args, err)
		}
		if err := command.ValidateArgs(command.Flags().Args()); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// TestReservedFlags says that commonFlags has each flag that is not a parameter's, so that none hides one.
func TestReservedFlags(t *testing.T) {
	t.Parallel()
	root := newRoot(&Program{Getenv: os.Getenv})
	root.InitDefaultHelpFlag()
	for _, noun := range root.Commands() {
		for _, command := range noun.Commands() {
			check := func(f *pflag.Flag) {
				if _, ok := f.Value.(*value); !ok && !slices.Contains(commonFlags, f.Name) {
					t.Errorf("%s: commonFlags lacks --%s", command.CommandPath(), f.Name)
				}
			}
			if command.Annotations["operation"] != "" {
				command.Flags().VisitAll(check)
				command.InheritedFlags().VisitAll(check)
			}
		}
	}
}

// TestTour does the README's tour on the command line.
func TestTour(t *testing.T) {
	t.Parallel()
	s := start(t)
	group := s.id("group", "create", "Tour 1")
	entity := s.id("entity", "create", "192.0.2.0/28", "--group", "tour 1", "--v4-gateway", "192.0.2.1", "--vlan", "120")
	s.run("entity", "create", "192.0.2.5", "--group", "Tour 1").fails(8, "422", "/full_ip (--full-ip)", "overlaps with IP entity "+entity)

	client := s.id("client", "create", "ben-tour@example.com", "--first", "Ben", "--last", "Miller")
	s.wants("rack 12\nassigned\nfra1-s4\n", "entity", "update", "192.0.2.0/28", "--nickname", "rack 12", "--owner", "ben-tour@example.com",
		"--owner-server", "4", "--owner-server-name", "fra1-s4", "--jq", ".name, .status, .owner.server.name")
	s.run("client", "delete", "ben-tour@example.com").fails(6, "409", "has IP entity "+entity)

	s.ok("group", "create-entities", "Tour 1", "198.51.100.0/24", "--gateway", "198.51.100.1", "--subnet-mask", "255.255.255.0")
	s.wants("198.51.100.2\n198.51.100.3\n", "group", "allocate", "Tour 1", "--count", "2", "--owner", "Ben Miller", "--jq", ".[].full_ip")
	s.wants("3\n", "group", "utilization", group, "--jq", ".used")
	s.wants("name,address,owner.name\n198.51.100.3,198.51.100.3,Ben Miller\n198.51.100.2,198.51.100.2,Ben Miller\n"+
		"rack 12,192.0.2.0/28,Ben Miller\n",
		"entity", "list", "--owner", client, "--sort", "-address", "-o", "csv", "--columns", "name,address,owner.name")
	s.run("port-speed", "create", "--speed", "0", "--name", "").fails(8, "/name (--name): is required", "/speed (--speed): must be from 1")
	s.ok("entity", "update", "rack 12", "--clear", "owner")
	s.wants("quarantined\n", "entity", "get", entity, "--jq", ".status")
}

// TestFormats prints the same items in each format.
func TestFormats(t *testing.T) {
	t.Parallel()
	s := start(t)
	one := s.id("port-speed", "create", "--name", "formats 1G", "--speed", "1000")
	two := s.id("port-speed", "create", "--name", `formats "10" G: #1`, "--speed", "10000")
	list := func(more ...string) []string {
		return append([]string{"port-speed", "list", "--q", "formats", "--sort", "id"}, more...)
	}
	s.wants("NAME                SPEED\nformats 1G          1000\nformats \"10\" G: #1  10000\n", list("--columns", "name,speed")...)
	s.wants("name,speed\nformats 1G,1000\n\"formats \"\"10\"\" G: #1\",10000\n", list("-o", "csv", "--columns", "name,speed")...)
	s.wants("- name: formats 1G\n  speed: 1000\n- name: 'formats \"10\" G: #1'\n  speed: 10000\n",
		list("-o", "yaml", "--columns", "name,speed")...)
	var items []map[string]any
	if err := json.Unmarshal([]byte(s.ok(list("-o", "json")...)), &items); err != nil || len(items) != 2 || items[0]["speed"] != 1000.0 {
		t.Errorf("got %v, %v, want two items", items, err)
	}
	s.wants("[1000,10000]\n", list("--jq", "[.[].speed]")...)
	s.wants("name   formats 1G\nspeed  1000\n", "port-speed", "get", one, "--columns", "name,speed")
	s.wants("name: formats 1G\n", "port-speed", "get", "formats 1g", "-o", "yaml", "--columns", "name")
	s.run(list("-o", "xml")...).fails(2, "table, json, yaml, csv")
	s.run(list("--jq", ".[")...).fails(2, "--jq")
	s.run(list("-o", "csv", "--columns", "colour")...).fails(1, `no column "colour". Its columns: id,`)
	if got := s.ok("port-speed", "delete", one, two, "--dry-run"); !strings.Contains(got, "deleted") {
		t.Errorf("got %q, want the answer of a real run", got)
	}
	s.wants("Port speeds "+one+", "+two+" deleted.\n", "port-speed", "delete", one, two)
	s.run("port-speed", "get", one).fails(5, "404")
}

// TestPages reads lists of several pages.
func TestPages(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.ok("group", "create", "Pages")
	s.ok("group", "create-entities", "Pages", "10.77.0.0/21", "--gateway", "10.77.0.1", "--subnet-mask", "255.255.248.0")
	s.wants("2045\n", "entity", "list", "--group", "Pages", "--all", "--jq", "length")
	r := s.run("entity", "list", "--group", "Pages", "--limit", "3", "--jq", "length")
	if r.out != "3\n" || !strings.Contains(r.err, "more than 3 items") {
		t.Errorf("got %q and %q, want 3 items, and that there are more", r.out, r.err)
	}
	if got := strings.Count(s.ok("entity", "list", "--group", "Pages", "--limit", "1500", "-o", "csv"), "\n"); got != 1501 {
		t.Errorf("got %d lines, want 1501", got)
	}
	group := s.id("group", "get", "Pages")
	s.wants("2045\n", "api", "/entity?group_id="+group, "--paginate", "--jq", "length")
	s.run("entity", "list", "--limit", "0").fails(2, "--limit")
}

// TestNames finds items by their names, and refuses names that are not one item's.
func TestNames(t *testing.T) {
	t.Parallel()
	s := start(t)
	one := s.id("client", "create", "n1@example.com", "--first", "Nora", "--last", "Same")
	two := s.id("client", "create", "n2@example.com", "--first", "Nora", "--last", "Same")
	s.run("client", "get", "nora same").
		fails(12, "several items have the name", one+"  Nora Same, n1@example.com", two+"  Nora Same, n2@example.com")
	s.run("client", "get", "Nora").fails(5, `no client has the name "Nora". Similar ones:`, "n1@example.com")
	s.run("client", "get", "nobody at all").fails(5, `no client has the name "nobody at all"`)
	s.wants(two+"\n", "client", "get", "N2@example.com", "--jq", ".id")
	s.run("entity", "list", "--owner", "nora same").fails(12, "--owner")
	s.wants("[]\n", "entity", "list", "--owner", "n1@example.com", "--jq", ".")
	s.run("webhook-delivery", "get", "1", "first").fails(2, `"first" is not an id`)
}

// TestExitCodes says that the kind of an error can be told from the exit code.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.run("entity", "frobnicate").fails(2, `unknown command "frobnicate"`)
	s.run("frobnicate").fails(2, "unknown command")
	s.run("entity", "list", "--colour", "red").fails(2, "--colour", "ironplane entity list --help")
	s.run("entity", "list", "--status", "lost").fails(2, "available, assigned, reserved, quarantined")
	s.run("entity", "get").fails(2, "got 0 arguments")
	s.run("entity", "get", "999999").fails(5, "404", "request ")
	s.run("group", "create").fails(8, "/name (--name): is required")
	s.run("group", "update", s.id("group", "create", "Exit"), "--if-match", `"0"`, "--reserved").fails(7, "412")

	admin := s.id("admin", "create", "weak@example.com", "--username", "weak", "--password", "@"+file(t, "a long walk in the rain\n"))
	key := strings.TrimSpace(s.ok("api-key", "create", "weak", "--owner-url", "/admin/"+admin, "--jq", ".key"))
	weak := *s
	weak.env = map[string]string{"IRONPLANE_URL": s.admin.URL, "IRONPLANE_KEY": key}
	weak.run("entity", "list").fails(4, "403", "network.entities")
	weak.env["IRONPLANE_KEY"] = "ip_wrong"
	weak.run("entity", "list").fails(3, "401", "IRONPLANE_KEY")
	weak.env["IRONPLANE_URL"] = ""
	weak.run("entity", "list").fails(3, "IRONPLANE_URL")
	weak.env["IRONPLANE_URL"] = "ftp://example.com"
	weak.run("entity", "list").fails(2, "http://host")
	weak.env["IRONPLANE_URL"] = "http://127.0.0.1:1"
	weak.run("entity", "list").fails(10, "refused")
}

func file(t testing.TB, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestSecrets says that a secret is read from standard input or a file, and refused as an argument.
func TestSecrets(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.run("admin", "create", "s@example.com", "--password", "a long walk in the rain").fails(2, "a secret cannot be an argument")
	s.input = "a long walk in the sun\n"
	s.ok("admin", "create", "sunny@example.com", "--username", "sunny", "--password", "-")
	anyone := testkit.ClientAt(t, s.admin.URL)
	login := anyone.Do("POST", "/auth/key", map[string]any{"type": "admin", "username": "sunny", "password": "a long walk in the sun"})
	if login.Status != 200 {
		t.Errorf("got %d %s, want a sign-in with the password from standard input", login.Status, login.Text)
	}
	s.input = "secret"
	s.run("client", "update", "1", "--password", "-", "--current-password", "-").fails(2, "only one secret")
}

// TestBodies sends bodies from flags, from JSON and as CSV.
func TestBodies(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.wants("bodies 2\n7\n", "port-speed", "create", "--json", `{"name": "bodies 1", "speed": 7}`, "--name", "bodies 2", "--jq", ".name, .speed")
	s.input = `{"name": "bodies 3", "speed": 8}`
	s.wants("8\n", "port-speed", "create", "--json", "@-", "--jq", ".speed")
	s.run("port-speed", "create", "--json", "[1]").fails(2, "not a JSON object")
	s.input = "name,speed\nbodies 4,9\nbodies 5,0\n"
	s.run("port-speed", "create", "--csv", "-").fails(8, "line 3", "/speed")
	s.wants("1\n", "port-speed", "create", "--csv", "-", "--partial", "--dry-run", "--jq", ".count")
	s.wants("0\n", "port-speed", "list", "--q", "bodies 4", "--jq", "length")
	s.wants("1\n", "port-speed", "create", "--csv", "-", "--partial", "--jq", ".count")
	s.wants("9\n", "port-speed", "get", "bodies 4", "--jq", ".speed")
	s.run("port-speed", "create", "--dry-run").fails(2, "--csv")
	s.run("port-speed", "update", "bodies 4", "--clear", "colour").fails(2, `no member "colour"`)
	s.wants("rack\n", "api", "POST", "/port-speed", "--field", "name=rack", "--field", "speed=3", "--jq", ".name")
	if got := s.ok("api", "/port-speed?name=rack", "--include"); !strings.Contains(got, "X-Request-Id: ") || !strings.Contains(got, `"speed": 3`) {
		t.Errorf("got %q, want headers and a body", got)
	}
}
