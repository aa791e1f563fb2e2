package setup

import (
	"path/filepath"
	"testing"

	"github.com/ironplane/ironplane/pkg/runtime/maintenance"
)

// TestMaintenanceOfAll shows that maintenance begins and ends for each process, in the folder that the process can read.
func TestMaintenanceOfAll(t *testing.T) {
	t.Parallel()
	c := config{Secrets: t.TempDir(), Redis: "127.0.0.1:1", Postgres: "127.0.0.1:1"}
	if err := createSecrets(c); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		act    func(maintenance.File) error
		active bool
	}{{func(f maintenance.File) error { return f.Begin("why") }, true}, {maintenance.File.End, false}, {maintenance.File.End, false}} {
		if err := c.forEachProcess(step.act); err != nil {
			t.Fatal(err)
		}
		for _, name := range processes() {
			if _, active := maintenance.File(filepath.Join(c.Secrets, name, "maintenance")).Reason(); active != step.active {
				t.Errorf("%s: got maintenance %t, want %t", name, active, step.active)
			}
		}
	}
}
