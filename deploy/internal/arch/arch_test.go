// Package arch holds the arrows between packages, and how large what all of them share may become.
package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	ours = "github.com/ironplane/ironplane/"
	root = "../../.."
)

// arrows say what of ours the packages of a folder may import; the first line that fits a package holds. A star is one
// name, the same on both sides.
var arrows = []struct{ folder, may string }{
	{"pkg/principal", "pkg/permission"},
	{"pkg/guard", "pkg/permission pkg/principal pkg/problem"},
	{"pkg/problemhttp", "pkg/accept pkg/principal pkg/problem"},
	{"pkg/apikey", "pkg/problem pkg/secret"},
	{"pkg/seal", "pkg/secret"},
	{"pkg/cache", "pkg/secret"},
	{"pkg/keycache", "pkg/cache pkg/principal pkg/seal"},
	{"pkg/mesh", ""},
	{"pkg/pgerror", "pkg/problem"},
	{"pkg/statement", "pkg/secret pkg/shape"},
	{"pkg/pg", "pkg/pgerror pkg/principal pkg/statement"},
	{"pkg/listing", "pkg/pg pkg/statement"},
	{"pkg/table", "pkg/pg pkg/seal pkg/secret pkg/statement"},
	{"pkg/rest", "pkg/accept pkg/guard pkg/listing pkg/openapi pkg/permission pkg/pg pkg/pgerror pkg/principal pkg/problem pkg/problemhttp pkg/seal pkg/secret pkg/shape pkg/table"},
	{"pkg/events", "pkg/cache pkg/guard pkg/mesh pkg/pg pkg/principal pkg/problem pkg/rest pkg/seal pkg/secret"},
	{"pkg/service", "pkg/events pkg/health pkg/keycache pkg/mesh pkg/pg pkg/rest pkg/seal pkg/secret"},
	{"pkg", ""},
	{"backing/provision", "pkg/secret process/pool process/schema"},
	{"backing", "backing"},
	{"process/peers", "pkg/mesh pkg/principal process/tracing"},
	{"process/mtls", "process/peers pkg/principal pkg/problem pkg/problemhttp pkg/secret process/tracing"},
	{"process/consul", "pkg/secret process/mtls"},
	{"process/mail", "pkg/events pkg/pg pkg/secret"},
	{"process/setting", "pkg/mesh"},
	{"process/account", "pkg/problem pkg/secret process/tracing"},
	{"process/lockout", "process/account pkg/cache pkg/pg pkg/principal pkg/problem pkg/secret"},
	{"process/credentials", ""},
	{"process/strangers", "pkg/problem"},
	{"process/maintenance", "pkg/problem"},
	{"process/agent", "pkg/problem pkg/secret"},
	{"process/egress", ""},
	{"process/tracing", ""},
	{"process/pool", "pkg/pg pkg/pgerror pkg/secret process/tracing"},
	{"process/schema", "pkg/pg process/pool"},
	{"process/jobs", "pkg"},
	{"process/host", "pkg process/jobs process/maintenance process/pool process/schema process/setting"},
	{"process/server", "process pkg"},
	{"process", "pkg/cache pkg/health pkg/secret process/consul process/mtls process/tracing"},
	{"clients/go", ""},
	{"testkit", "backing pkg process/host process/pool"},
	{"template", "pkg/secret"},
	{"gateway", "gateway pkg/apikey pkg/cache pkg/health pkg/keycache pkg/mesh pkg/openapi pkg/permission pkg/principal pkg/problem pkg/problemhttp pkg/seal pkg/secret process"},
	{"services/pxe/siteagent", "services/pxe/siteagent pkg/problem pkg/problemhttp pkg/secret"},
	{"services/pxe/cmd/site-agent", "services/pxe/siteagent pkg/health pkg/secret process"},
	{"services/*", "services/* pkg process/account process/agent process/credentials process/egress process/lockout process/mail process/jobs process/server process/setting process/strangers template"},
	{"deploy", "backing clients/go deploy gateway pkg process services template testkit"},
}

// withoutDatabase link no driver of Postgres, however far away.
var withoutDatabase = []string{"gateway", "pkg/problem", "pkg/problemhttp", "pkg/permission", "pkg/principal", "pkg/guard", "pkg/keycache", "process/mtls", "services/pxe/siteagent", "services/pxe/cmd/site-agent"}

// shared are the packages that the file of a resource imports. Who looks at the caller imports principal, too.
var shared = []string{"guard", "permission", "pg", "problem", "rest", "secret"}

const (
	mostLines = 10_000 // of pkg without its tests
	mostNames = 160    // exported by shared, with the methods of exported types
)

type pkg struct {
	ImportPath    string
	Imports, Deps []string
}

func list(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,Deps", ours+"...").Output()
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

func TestArrows(t *testing.T) {
	t.Parallel()
	all := list(t)
	if len(all) < 40 {
		t.Fatalf("only %d packages", len(all))
	}
	for _, p := range all {
		path := strings.TrimPrefix(p.ImportPath, ours)
		star := ""
		line := slices.IndexFunc(arrows, func(a struct{ folder, may string }) (ok bool) {
			star, ok = within(path, a.folder)
			return ok
		})
		if line < 0 {
			t.Errorf("%s is in no folder of arrows", path)
			continue
		}
		may := strings.Fields(strings.ReplaceAll(arrows[line].may, "*", star))
		for _, imported := range p.Imports {
			to, isOurs := strings.CutPrefix(imported, ours)
			if isOurs && !slices.ContainsFunc(may, func(folder string) bool { _, ok := within(to, folder); return ok }) {
				t.Errorf("%s imports %s; it may import %q", path, to, may)
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

func TestSizeOfPkg(t *testing.T) {
	t.Parallel()
	lines := 0
	sources(t, "pkg", func(_ string, text []byte) { lines += bytes.Count(text, []byte("\n")) })
	t.Logf("pkg has %d lines", lines)
	if lines > mostLines || lines < 5000 {
		t.Errorf("pkg has %d lines, at most %d are wanted", lines, mostLines)
	}
}

func TestNamesOfPkg(t *testing.T) {
	t.Parallel()
	total := 0
	for _, name := range shared {
		names := 0
		sources(t, "pkg/"+name, func(path string, text []byte) {
			file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range file.Decls {
				names += exported(d)
			}
		})
		t.Logf("%s exports %d names", name, names)
		total += names
	}
	t.Logf("together %d", total)
	if total > mostNames || total < 50 {
		t.Errorf("%v export %d names, at most %d are wanted", shared, total, mostNames)
	}
}

// exported counts the names that a declaration adds for other packages.
func exported(d ast.Decl) (n int) {
	var names []*ast.Ident
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv != nil && !receiver(d.Recv.List[0].Type).IsExported() {
			return 0
		}
		names = []*ast.Ident{d.Name}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				names = append(names, s.Name)
			case *ast.ValueSpec:
				names = append(names, s.Names...)
			}
		}
	}
	for _, name := range names {
		if name.IsExported() {
			n++
		}
	}
	return n
}

func receiver(of ast.Expr) *ast.Ident {
	switch of := of.(type) {
	case *ast.StarExpr:
		return receiver(of.X)
	case *ast.IndexExpr:
		return receiver(of.X)
	case *ast.IndexListExpr:
		return receiver(of.X)
	}
	return of.(*ast.Ident)
}

// Every role of a database can take any advisory lock of it, so nothing of ours waits for one.
func TestNoAdvisoryLocks(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"backing", "pkg", "process", "testkit", "gateway", "services", "deploy"} {
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
	files, err := filepath.Glob("../../../*/*/migrations/*.sql")
	if err != nil || len(files) < 20 {
		t.Fatal(files, err)
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
