package arch

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// What a reader holds in the head. There is no bound on a folder with its subfolders: it could be met by moving code.
const (
	maxPackageLines  = 2500 // without tests
	maxFileLines     = 400  // without tests
	maxFunctionLines = 70   // without tests
	maxLineLength    = 140  // in characters, tests included; struct tags and raw strings cannot be broken
)

// beyond are the exceptions, each with the reason why a smaller one would be worse. A function stands as FILE:NAME.
var beyond = map[string]string{
	"gateway":              "the way of one request from its head to its answer; limits and the proxy are packages of their own",
	"pkg/rest":             "a resource from its declaration to its records: lists, changes and CSV share scope, locks and responses",
	"services/clients":     "who reaches, changes and suspends which account: accounts, links and suspensions share statements and locks",
	"services/pxe/install": "an install from its request to its end: those who see, begin, retry and report it share its states",
	"services/network":     "who has which address: entities, allocation, removal and search share statements and locks",
}

// advice says what to do about something that is too large.
var advice = map[string]string{
	"package":  "Move a topic that has its own state into a package of its own.",
	"file":     "Move a topic into a file of its own, named for it.",
	"function": "Name its steps: a function for each.",
	"line":     "Break it: one field or argument a line, or a string in parts.",
}

func TestBounds(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	check := func(kind, name string, size, limit int) {
		if size <= limit {
			return
		}
		if beyond[name] != "" {
			used[name] = true
			return
		}
		t.Errorf("%s: got a %s of %d, want at most %d. %s If that would be worse, add it to beyond with the reason.",
			name, kind, size, limit, advice[kind])
	}
	packages := map[string]int{}
	for _, folder := range []string{"deploy", "gateway", "pkg", "services"} {
		goFiles(t, folder, func(path string, text []byte) {
			if bytes.Contains(text[:min(len(text), 500)], []byte("DO NOT EDIT.")) {
				return
			}
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, path, text, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for line := range longLines(fset, file, text) {
				check("line", fmt.Sprintf("%s:%d", path, line), maxLineLength+1, maxLineLength)
			}
			if strings.HasSuffix(path, "_test.go") {
				return
			}
			lines := bytes.Count(text, []byte("\n"))
			packages[filepath.Dir(path)] += lines
			check("file", path, lines, maxFileLines)
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok {
					size := fset.Position(f.End()).Line - fset.Position(f.Pos()).Line + 1
					check("function", path+":"+f.Name.Name, size, maxFunctionLines)
				}
			}
		})
	}
	for folder, lines := range packages {
		check("package", folder, lines, maxPackageLines)
	}
	if len(packages) < 60 {
		t.Errorf("got %d packages, want at least 60", len(packages))
	}
	for name := range beyond {
		if !used[name] {
			t.Errorf("%s keeps to its bound: delete its line in beyond", name)
		}
	}
}

// longLines returns the lines that are too long and could be broken: not those that a struct tag or a raw string is on.
func longLines(fset *token.FileSet, file *ast.File, text []byte) map[int]bool {
	long := map[int]bool{}
	number := 0
	for line := range bytes.Lines(text) {
		number++
		if utf8.RuneCount(bytes.TrimRight(line, "\n")) > maxLineLength {
			long[number] = true
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		raw, ok := n.(*ast.BasicLit)
		if ok && raw.Kind == token.STRING && raw.Value[0] == '`' {
			for l := fset.Position(raw.Pos()).Line; l <= fset.Position(raw.End()).Line; l++ {
				delete(long, l)
			}
		}
		return true
	})
	return long
}

// goFiles calls use for each Go file in a folder of the repository, with its path from the root.
func goFiles(t *testing.T, folder string, use func(path string, text []byte)) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err == nil {
			use(relative, text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
