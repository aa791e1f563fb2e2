package setup

import (
	"context"
	"io"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/runtime/maintenance"
	"github.com/ironplane/ironplane/pkg/runtime/process"
)

// TestMaintenanceFiles shows that the file begins and ends maintenance for each process, in the folder that the process can read, and
// needs no database.
func TestMaintenanceFiles(t *testing.T) {
	t.Parallel()
	c := config{Secrets: t.TempDir(), Redis: "127.0.0.1:1", Postgres: "127.0.0.1:1", Reason: "why"}
	if err := createSecrets(c); err != nil {
		t.Fatal(err)
	}
	commands := product.MaintenanceCommands(func() product.Maintenance { return c.maintenance(io.Discard) })
	for _, step := range []struct {
		command string
		active  bool
	}{{"maintenance-file-on", true}, {"maintenance-file-off", false}, {"maintenance-file-off", false}} {
		n := slices.IndexFunc(commands, func(c process.Command) bool { return c.Name == step.command })
		if err := commands[n].Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		for _, name := range processes() {
			status := maintenance.File(filepath.Join(c.Secrets, name, "maintenance")).Status()
			if (status != nil) != step.active || status != nil && status.Reason != "why" {
				t.Errorf("%s: got maintenance %+v after %s, want it active: %t", name, status, step.command, step.active)
			}
		}
	}
}
