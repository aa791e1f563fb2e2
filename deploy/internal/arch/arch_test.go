// Package arch tests the structure of the repository: which package may import which, how large files and functions may
// become, and where modules begin.
package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	modulePath = "github.com/ironplane/ironplane/"
	root       = "../../.."
)

// A set is packages that several folders may import, by a name in capitals.
var sets = map[string]string{
	// What a request needs on its way through any service.
	"BASE": `pkg/auth/apikey pkg/auth/guard pkg/auth/keycache pkg/auth/permission pkg/auth/principal pkg/cache pkg/events
		pkg/postgres/listing pkg/postgres/pg pkg/postgres/pgerror pkg/postgres/statement pkg/postgres/table pkg/problem pkg/rest
		pkg/runtime/health pkg/runtime/mesh pkg/runtime/tracing pkg/schema pkg/seal pkg/secret pkg/service pkg/wake`,
	// What some services need beside it.
	"SHARED": `pkg/auth/account pkg/auth/credentials pkg/auth/knowngrants pkg/auth/lockout pkg/auth/throttle pkg/catalog pkg/egress pkg/jobs
		pkg/mail pkg/remote pkg/settings pkg/template`,
}

// arrows say which of our packages the packages in a folder may import. The first line that matches a package holds. A star
// stands for one name, the same on both sides.
var arrows = []struct{ folder, may string }{
	{"pkg/auth/account", "pkg/problem pkg/runtime/tracing pkg/secret pkg/settings"},
	{"pkg/auth/apikey", "pkg/problem pkg/secret"},
	{"pkg/auth/credentials", "pkg/problem pkg/runtime/mesh"},
	{"pkg/auth/guard", "pkg/auth/permission pkg/auth/principal pkg/problem"},
	{"pkg/auth/knowngrants", "pkg/auth/principal pkg/postgres/pg"},
	{"pkg/auth/keycache", "pkg/auth/principal pkg/cache pkg/seal"},
	{"pkg/auth/lockout", "pkg/auth/account pkg/auth/principal pkg/cache pkg/postgres/pg pkg/problem pkg/secret"},
	{"pkg/auth/permission", ""},
	{"pkg/auth/principal", "pkg/auth/permission"},
	{"pkg/auth/throttle", "pkg/problem"},
	{"pkg/cache", "pkg/secret"},
	{"pkg/catalog", "pkg/auth/permission"},
	{"pkg/client", ""},
	{"pkg/devservers", "pkg/devservers"},
	{"pkg/egress", ""},
	{"pkg/events", `pkg/auth/guard pkg/auth/principal pkg/postgres/pg pkg/problem pkg/rest pkg/runtime/mesh pkg/runtime/tracing
		pkg/seal pkg/secret pkg/wake`},
	{"pkg/jobs", "BASE"},
	{"pkg/mail", "pkg/events pkg/postgres/pg pkg/secret"},
	{"pkg/postgres/listing", "pkg/postgres/pg pkg/postgres/statement"},
	{"pkg/postgres/migrate", "pkg/postgres/pg pkg/postgres/pool"},
	{"pkg/postgres/pg", "pkg/auth/principal pkg/postgres/pgerror pkg/postgres/statement pkg/runtime/tracing pkg/schema pkg/secret"},
	{"pkg/postgres/pgerror", "pkg/problem"},
	{"pkg/postgres/pool", "pkg/postgres/pg pkg/postgres/pgerror pkg/runtime/tracing pkg/secret"},
	{"pkg/postgres/provision", "pkg/postgres/migrate pkg/postgres/pgerror pkg/postgres/pool pkg/secret"},
	{"pkg/postgres/statement", "pkg/schema pkg/secret"},
	{"pkg/postgres/table", "pkg/postgres/pg pkg/postgres/statement pkg/seal pkg/secret"},
	{"pkg/problem", "pkg/auth/principal"},
	{"pkg/remote", "pkg/problem pkg/secret"},
	{"pkg/rest/apidoc", `pkg/auth/guard pkg/auth/permission pkg/problem pkg/rest/body pkg/rest/noun pkg/rest/openapi pkg/rest/route pkg/schema
		pkg/secret`},
	{"pkg/rest/body", "pkg/postgres/pgerror pkg/problem pkg/rest/openapi pkg/schema pkg/secret"},
	{"pkg/rest/noun", ""},
	{"pkg/rest/openapi", ""},
	{"pkg/rest/route", `pkg/auth/guard pkg/auth/permission pkg/auth/principal pkg/postgres/pg pkg/postgres/pgerror pkg/problem
		pkg/rest/body pkg/rest/openapi pkg/schema`},
	{"pkg/rest", `pkg/auth/guard pkg/auth/permission pkg/auth/principal pkg/postgres/listing pkg/postgres/pg pkg/postgres/pgerror
		pkg/postgres/table pkg/problem pkg/rest pkg/schema pkg/seal pkg/secret`},
	{"pkg/runtime/consul", "pkg/runtime/mtls pkg/secret"},
	{"pkg/runtime/health", "pkg/runtime/maintenance"},
	{"pkg/runtime/host", "BASE pkg/jobs pkg/postgres/migrate pkg/postgres/pool pkg/runtime/maintenance pkg/settings"},
	{"pkg/runtime/maintenance", "pkg/problem"},
	{"pkg/runtime/mesh", ""},
	{"pkg/runtime/mtls", "pkg/auth/principal pkg/problem pkg/runtime/peers pkg/runtime/tracing pkg/secret"},
	{"pkg/runtime/peers", "pkg/auth/principal pkg/runtime/mesh pkg/runtime/tracing"},
	{"pkg/runtime/process", `pkg/cache pkg/runtime/consul pkg/runtime/health pkg/runtime/mtls pkg/runtime/resolver
		pkg/runtime/tracing pkg/secret`},
	{"pkg/runtime/resolver", ""},
	{"pkg/runtime/server", "BASE pkg/catalog pkg/jobs pkg/postgres/migrate pkg/postgres/pool pkg/runtime pkg/settings"},
	{"pkg/runtime/tracing", ""},
	{"pkg/schema", ""},
	{"pkg/seal", "pkg/secret"},
	{"pkg/secret", ""},
	{"pkg/service", `pkg/auth/keycache pkg/auth/permission pkg/cache pkg/catalog pkg/events pkg/postgres/pg pkg/postgres/pool pkg/rest pkg/runtime/health
		pkg/runtime/mesh pkg/seal pkg/secret pkg/wake`},
	{"pkg/settings", "pkg/runtime/mesh"},
	{"pkg/template", "pkg/secret"},
	{"pkg/testkit/neighbours", `pkg/cache pkg/auth/credentials pkg/auth/keycache pkg/auth/principal pkg/events pkg/mail pkg/postgres/pg
		pkg/runtime/peers pkg/seal pkg/secret pkg/service pkg/settings pkg/testkit`},
	{"pkg/testkit", `BASE pkg/devservers pkg/postgres/migrate pkg/postgres/pool pkg/postgres/provision pkg/runtime/host
		pkg/runtime/peers pkg/testkit`},
	{"pkg/wake", ""},
	{"gateway", `gateway pkg/auth/apikey pkg/auth/guard pkg/auth/keycache pkg/auth/permission pkg/auth/principal pkg/auth/throttle pkg/cache
		pkg/catalog pkg/problem pkg/rest/openapi pkg/runtime pkg/seal pkg/secret pkg/settings pkg/wake`},
	{"services/pxe/siteagent", "services/pxe/siteagent pkg/problem pkg/secret"},
	{"services/pxe/cmd/site-agent", "services/pxe/siteagent pkg/runtime/health pkg/runtime/process pkg/secret"},
	{"services/*", "services/* BASE SHARED pkg/runtime/server"},
	{"deploy/terraform-provider", "deploy/terraform-provider pkg/client"},
	{"deploy", "deploy gateway pkg services"},
}

// withoutDatabase link no driver of PostgreSQL, not even through another package.
var withoutDatabase = []string{
	"gateway", "pkg/catalog", "pkg/auth/apikey", "pkg/auth/guard", "pkg/auth/keycache", "pkg/auth/permission", "pkg/auth/principal",
	"pkg/problem", "pkg/runtime/mtls", "services/pxe/siteagent", "services/pxe/cmd/site-agent",
}

// modules are the folders with a go.mod, each for one of three reasons: outsiders import it, it ships alone, or it brings
// dependencies that the others must not have. Each service is one: it ships alone.
var modules = map[string]string{
	"pkg":                       "what every service shares: one version for all of them",
	"pkg/client":                "outsiders import it, and must not get a server's dependencies with it",
	"gateway":                   "ships alone, without a database driver",
	"deploy":                    "imports all services, and Docker, a browser and fault injection for its tests",
	"deploy/terraform-provider": "ships alone, with Terraform's libraries, which nothing else needs",
}

type pkg struct {
	ImportPath    string
	Imports, Deps []string
}

func list(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,Deps", modulePath+"...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []pkg
	for from := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := from.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// within tells whether a package is in a folder, and what the folder's star stands for.
func within(path, folder string) (star string, ok bool) {
	before, _, starred := strings.Cut(folder, "*")
	if !starred {
		return "", path == folder || strings.HasPrefix(path, folder+"/")
	}
	rest, ok := strings.CutPrefix(path, before)
	star, _, _ = strings.Cut(rest, "/")
	return star, ok
}

// allowed returns the folders that a line of arrows names, with its sets and its star replaced.
func allowed(may, star string) (folders []string) {
	for word := range strings.FieldsSeq(strings.ReplaceAll(may, "*", star)) {
		if set, ok := sets[word]; ok {
			folders = append(folders, strings.Fields(set)...)
		} else {
			folders = append(folders, word)
		}
	}
	return folders
}

func TestArrows(t *testing.T) {
	t.Parallel()
	all := list(t)
	if len(all) < 40 {
		t.Fatalf("only %d packages", len(all))
	}
	for _, p := range all {
		path := strings.TrimPrefix(p.ImportPath, modulePath)
		star := ""
		line := slices.IndexFunc(arrows, func(a struct{ folder, may string }) (ok bool) {
			star, ok = within(path, a.folder)
			return ok
		})
		if line < 0 {
			t.Errorf("%s is in no folder of arrows", path)
			continue
		}
		may := allowed(arrows[line].may, star)
		for _, imported := range p.Imports {
			to, isLocal := strings.CutPrefix(imported, modulePath)
			if isLocal && !slices.ContainsFunc(may, func(folder string) bool { _, ok := within(to, folder); return ok }) {
				t.Errorf(
					"%s imports %s, which its line of arrows does not allow (%q). Move the code, or, if the import is right, add it to arrows.",
					path,
					to,
					may,
				)
			}
		}
		if slices.ContainsFunc(withoutDatabase, func(folder string) bool { _, ok := within(path, folder); return ok }) {
			if at := slices.IndexFunc(p.Deps, func(dep string) bool { return strings.HasPrefix(dep, "github.com/jackc/pgx") }); at >= 0 {
				t.Errorf("%s links %s", path, p.Deps[at])
			}
		}
	}
}

// sources calls use for each file of Go in a folder that is no test.
func sources(t *testing.T, folder string, use func(path string, text []byte)) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil {
			use(path, text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Every role of a database can take any advisory lock of it, so nothing of modulePath waits for one.
func TestNoAdvisoryLocks(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"pkg", "gateway", "services", "deploy"} {
		sources(t, folder, func(path string, text []byte) {
			if bytes.Contains(text, []byte("pg_advisory")) || bytes.Contains(text, []byte("pg_try_advisory")) {
				t.Errorf("%s takes an advisory lock", path)
			}
		})
	}
}

// TestMigrationNumbers says that no two migrations of a schema have one number: such a schema cannot be made.
func TestMigrationNumbers(t *testing.T) {
	t.Parallel()
	var files []string
	for _, pattern := range []string{"pkg/*/migrations/*.sql", "pkg/*/*/migrations/*.sql", "services/*/migrations/*.sql"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) < 20 {
		t.Fatalf("got %d migrations, want at least 20", len(files))
	}
	known := map[string]string{}
	for _, file := range files {
		folder := filepath.Dir(file)
		if strings.Contains(folder, "/pkg/") {
			folder = "shared" // every service has those of all of them, numbered together
		}
		number, _, _ := strings.Cut(filepath.Base(file), "_")
		if other, ok := known[folder+number]; ok {
			t.Errorf("%s and %s have one number", other, file)
		}
		known[folder+number] = file
	}
}

func TestModules(t *testing.T) {
	t.Parallel()
	tracked, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "*go.mod").Output()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for file := range strings.FieldsSeq(string(tracked)) {
		found[filepath.Dir(file)] = true
		if _, service := within(filepath.Dir(file), "services/*"); modules[filepath.Dir(file)] == "" && !service {
			t.Errorf("%s is a module without a reason. Add its code to another module, or its reason to modules.", filepath.Dir(file))
		}
	}
	for folder := range modules {
		if !found[folder] {
			t.Errorf("modules names %s, which has no go.mod. Delete its line.", folder)
		}
	}
}

// A module that ships alone requires pkg and nothing else of modulePath, and pkg requires nothing of modulePath. Terraform's provider
// requires the Go client alone, as outsiders do.
func TestRequirements(t *testing.T) {
	t.Parallel()
	required := regexp.MustCompile(`(?m)^(?:require )?\s*` + regexp.QuoteMeta(modulePath) + `(\S+) v`)
	services, err := filepath.Glob(filepath.Join(root, "services", "*"))
	if err != nil || len(services) < 5 {
		t.Fatalf("got the services %v and %v, want at least five", services, err)
	}
	folders := slices.Collect(maps.Keys(modules))
	for _, service := range services {
		folders = append(folders, "services/"+filepath.Base(service))
	}
	for _, folder := range folders {
		may := "pkg"
		if folder == "deploy/terraform-provider" {
			may = "pkg/client"
		}
		text, err := os.ReadFile(filepath.Join(root, folder, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range required.FindAllStringSubmatch(string(text), -1) {
			if strings.HasPrefix(folder, "pkg") || folder != "deploy" && found[1] != may {
				t.Errorf("%s requires %s, want it to build without", folder, found[1])
			}
		}
	}
}
