package product_test

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/postgres/migrate"
)

// A migration that installations have done stays as it is, and others come behind it. migrations.sum, which sha256sum reads,
// has those of the last release.
func TestReleasedMigrations(t *testing.T) {
	t.Parallel()
	const root = "../../../"
	sums, err := os.ReadFile("migrations.sum")
	if err != nil {
		t.Fatal(err)
	}
	// Those of pkg are numbered together.
	set := func(file string) string {
		if strings.HasPrefix(file, "pkg/") {
			return "pkg"
		}
		return filepath.Dir(file)
	}
	number := func(file string) string { n, _, _ := strings.Cut(filepath.Base(file), "_"); return n }
	released, last := map[string]bool{}, map[string]string{}
	for line := range strings.Lines(string(sums)) {
		sum, file, _ := strings.Cut(strings.TrimSpace(line), "  ")
		released[file] = true
		last[set(file)] = max(last[set(file)], number(file))
		text, err := os.ReadFile(root + file)
		if err != nil {
			t.Errorf("a migration that installations have done is gone: %v", err)
		} else if !slices.ContainsFunc(migrate.Checksums(text), func(known []byte) bool { return hex.EncodeToString(known) == sum }) {
			t.Errorf("%s was edited, and installations have done it: put it back as it was, and add another one", file)
		}
	}
	var files []string
	for _, pattern := range []string{"pkg/*/migrations/*.sql", "pkg/*/*/migrations/*.sql", "services/*/migrations/*.sql"} {
		found, err := filepath.Glob(root + pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) < len(released) || len(released) < 30 {
		t.Errorf("%d migrations, %d of them released", len(files), len(released))
	}
	taken := map[string]string{}
	for _, file := range files {
		file = strings.TrimPrefix(file, root)
		n := number(file)
		if other := taken[set(file)+n]; other != "" {
			t.Errorf("%s and %s have the same number", file, other)
		}
		taken[set(file)+n] = file
		if !released[file] && n <= last[set(file)] {
			t.Errorf("%s was put in before number %s, which installations have done: give it the next free number", file, last[set(file)])
		}
	}
}
