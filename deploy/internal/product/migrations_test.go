package product_test

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/postgres/migrate"
)

// A released migration never changes, and new ones come after it. migrations.sum, a file for sha256sum, has the checksums of
// the last release, with its views and functions.
func TestReleasedMigrations(t *testing.T) {
	t.Parallel()
	sums, err := os.ReadFile("migrations.sum")
	if err != nil {
		t.Fatal(err)
	}
	released, last, redefined := map[string]bool{}, map[string]string{}, map[string]string{}
	for line := range strings.Lines(string(sums)) {
		sum, file, _ := strings.Cut(strings.TrimSpace(line), "  ")
		text, err := os.ReadFile(root + file)
		if strings.Contains(file, "/schema/") {
			if err != nil || hex.EncodeToString(migrate.Checksums(text)[0]) != sum {
				redefined[setOf(file)] = file
			}
			continue
		}
		released[file] = true
		last[setOf(file)] = max(last[setOf(file)], numberOf(file))
		if err != nil {
			t.Errorf("got %v, want the migration, which installations have done", err)
		} else if !slices.ContainsFunc(migrate.Checksums(text), func(known []byte) bool { return hex.EncodeToString(known) == sum }) {
			t.Errorf("got %s edited, want it as installations have done it: put it back as it was, and add another one", file)
		}
	}
	files := migrations(t)
	if len(files) < len(released) || len(released) < 30 {
		t.Errorf("got %d migrations and %d released ones, want at least the released ones and 30 of these", len(files), len(released))
	}
	used, newest := map[string]string{}, map[string]string{}
	for _, file := range files {
		set, n := setOf(file), numberOf(file)
		if other := used[set+n]; other != "" {
			t.Errorf("got one number for %s and %s, want one for each", file, other)
		}
		used[set+n], newest[set] = file, max(newest[set], n)
		if !released[file] && n <= last[set] {
			t.Errorf("got %s before number %s, which installations have done, want the next free number", file, last[set])
		}
	}
	for set, file := range redefined {
		if newest[set] <= last[set] {
			t.Errorf("got %s edited since the last release, want a newer migration in %s, if only a comment: by its number an older program "+
				"knows that the schema's views are newer than its own.", file, set)
		}
	}
}

const root = "../../../"

// migrations returns the files of all sets.
func migrations(t *testing.T) (files []string) {
	t.Helper()
	for _, pattern := range []string{"pkg/*/migrations/*.sql", "pkg/*/*/migrations/*.sql", "services/*/migrations/*.sql"} {
		found, err := filepath.Glob(root + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			files = append(files, strings.TrimPrefix(file, root))
		}
	}
	return files
}

// setOf returns the set that a migration or a definition belongs to. The migrations in pkg are numbered together.
func setOf(file string) string {
	if strings.HasPrefix(file, "pkg/") {
		return "pkg"
	}
	service, _, _ := strings.Cut(strings.TrimPrefix(file, "services/"), "/")
	return "services/" + service + "/migrations"
}

func numberOf(file string) string { n, _, _ := strings.Cut(filepath.Base(file), "_"); return n }

// lastWithViews are the numbers of the last migrations from before views and trigger functions had their own files.
var lastWithViews = map[string]string{
	"pkg":                          "0015",
	"services/clients/migrations":  "0010",
	"services/identity/migrations": "0017",
	"services/network/migrations":  "0018",
	"services/pxe/migrations":      "0017",
	"services/system/migrations":   "0028",
}

// Views and trigger functions have files in schema/ with their present text. Only a migration that fills a column by a
// function repeats the function's file.
func TestMigrationsDefineNoViews(t *testing.T) {
	t.Parallel()
	defines := regexp.MustCompile(`(?im)^\s*CREATE\s+(?:OR\s+REPLACE\s+)?(?:VIEW|TRIGGER|FUNCTION\s+\w+\(\)\s+RETURNS\s+trigger)\b`)
	for _, file := range migrations(t) {
		if numberOf(file) <= lastWithViews[setOf(file)] {
			continue
		}
		text, err := os.ReadFile(root + file)
		if err != nil {
			t.Fatal(err)
		}
		functions, err := filepath.Glob(root + filepath.Dir(filepath.Dir(file)) + "/schema/functions/*.sql")
		if err != nil {
			t.Fatal(err)
		}
		rest := string(text)
		for _, function := range functions {
			is, err := os.ReadFile(function)
			if err != nil {
				t.Fatal(err)
			}
			rest = strings.ReplaceAll(rest, strings.TrimSpace(string(is)), "")
		}
		if found := defines.FindString(rest); found != "" {
			t.Errorf("got %s in %s, want it in a file in %s", strings.TrimSpace(found), file, filepath.Dir(filepath.Dir(file))+"/schema")
		}
	}
}

// Each view and trigger function in schema.sql has its file.
func TestViewsHaveFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(root + "services/*/schema/schema.sql")
	if err != nil || len(files) < 5 {
		t.Fatalf("got %d files (%v), want one for each service", len(files), err)
	}
	file := regexp.MustCompile(`schema/(?:views|functions)/\w+\.sql`)
	for _, of := range append(files, root+"pkg/runtime/host/schema.sql") {
		text, err := os.ReadFile(of)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range file.FindAllString(string(text), -1) {
			path := filepath.Dir(filepath.Dir(of)) + "/" + name
			if strings.HasPrefix(of, root+"pkg/") {
				path = root + "pkg/*/" + name
			}
			if found, err := filepath.Glob(path); err != nil || len(found) != 1 {
				t.Errorf("%s names %s: got %d such files (%v), want 1", strings.TrimPrefix(of, root), name, len(found), err)
			}
		}
	}
}
