package main

import (
	"path/filepath"
	"testing"

	"github.com/ironplane/ironplane/pkg/runtime/maintenance"
)

// Maintenance is told to each process, in the folder that it sees, and ended in each.
func TestMaintenanceOfAll(t *testing.T) {
	t.Parallel()
	c := config{Secrets: t.TempDir(), Redis: "127.0.0.1:1", Postgres: "127.0.0.1:1"}
	if err := makeSecrets(c); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		do    func(maintenance.File) error
		there bool
	}{{func(f maintenance.File) error { return f.Begin("why") }, true}, {maintenance.File.End, false}, {maintenance.File.End, false}} {
		if err := c.ofAll(step.do); err != nil {
			t.Fatal(err)
		}
		for _, name := range processes() {
			if _, there := maintenance.File(filepath.Join(c.Secrets, name, "maintenance")).Reason(); there != step.there {
				t.Errorf("%s: got maintenance %t, want %t", name, there, step.there)
			}
		}
	}
}
