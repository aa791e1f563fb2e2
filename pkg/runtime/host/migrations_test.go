package host

import (
	"io/fs"
	"path"
	"slices"
	"testing"
)

// Installations know applied migrations by number, so a migration keeps its number even if it moves to another package.
func TestSharedMigrationsKeepTheirNumbers(t *testing.T) {
	var names []string
	for _, files := range sharedMigrations.Files {
		found, err := fs.Glob(files, "migrations/*.sql")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range found {
			names = append(names, path.Base(name))
		}
	}
	slices.Sort(names)
	want := []string{"0001_change.sql", "0002_idempotency.sql", "0003_events.sql", "0004_change_kind.sql"}
	if len(names) < len(want) || !slices.Equal(names[:len(want)], want) {
		t.Errorf("got the migrations %v, want them to begin with %v, which installations have done", names, want)
	}
}
