// Package startup is shared by the programs that run a whole installation on one machine: their variables, their commands, and
// the start and the end of what their services need.
package startup

import (
	"cmp"
	"context"
	"io"
	"os"
	"path/filepath"

	"github.com/ironplane/ironplane/deploy/internal/backup"
	"github.com/ironplane/ironplane/deploy/internal/datastores"
	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/gateway"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/pkg/runtime/maintenance"
	"github.com/ironplane/ironplane/pkg/runtime/process"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/settings"
)

// Config are the variables of the environment.
type Config struct {
	Listen       string `env:"IRONPLANE_LISTEN" default:"127.0.0.1:8080" doc:"the address to serve on"`
	AdminKeyFile string `env:"IRONPLANE_ADMIN_KEY_FILE" doc:"a file for the first admin's key (mode 0600), instead of the screen"`
	Datastores   datastores.Config
	Skip         events.Span `env:"IRONPLANE_SKIP_CHANGE" required:"skip-change" doc:"the changes of a service that others cannot apply: pxe:17, or pxe:17-20; or a message that another service cannot process, by its id: clients:8f14e45f-…"`
	Restored     product.ReconcileConfig
	Backup       backup.Config
	Reason       string `env:"IRONPLANE_MAINTENANCE_REASON" doc:"for maintenance-on and maintenance-file-on: the reason that callers see"`
	service.Settings
	settings.Variables
	process.LogConfig
	process.OperationsConfig
	Gateway gateway.Config
}

// maintenanceFile returns the file that begins maintenance. By default it is in the data folder.
func (c Config) maintenanceFile() maintenance.File {
	return cmp.Or(c.Gateway.Maintenance, maintenance.File(filepath.Join(c.Datastores.Data, "maintenance")))
}

// maintenance returns what the commands of maintenance work on.
func (c Config) maintenance(screen io.Writer) product.Maintenance {
	return product.Maintenance{
		Reason: c.Reason,
		Files:  []maintenance.File{c.maintenanceFile()},
		AsAdministrator: func(ctx context.Context, do func(context.Context, secret.String) error) error {
			return asAdministrator(ctx, c, do)
		},
		Screen: screen,
	}
}

// store returns the folder or the bucket of the store. By default it is in the data folder.
func (c Config) store() string { return cmp.Or(c.Store, filepath.Join(c.Datastores.Data, "store")) }

// Program returns a program with this name. It has the command run, with these checks besides those of its configuration, and
// commands for operators of an installation.
func Program(name string, run func(context.Context, Config) error, checks ...health.Check) process.Program {
	var c Config
	commands := []process.Command{
		{Name: "run", Summary: "start and serve until SIGINT or SIGTERM", Run: func(ctx context.Context) error {
			c.Gateway.Maintenance = c.maintenanceFile()
			c.Store = c.store()
			return run(ctx, c)
		}},
		{
			Name:    "admin-key",
			Summary: "create another key for the first admin, and print it; the installation may run",
			Run: func(ctx context.Context) error {
				return printAdminKey(ctx, c, os.Stdout)
			},
		},
		{
			Name:    "skip-change",
			Summary: "skip a change or a message of a service that others cannot apply; the installation may run",
			Run: func(ctx context.Context) error {
				return skipChange(ctx, c)
			},
		},
		{
			Name:    "postgres",
			Summary: "start only its own PostgreSQL, to restore into it, until SIGINT or SIGTERM",
			Run: func(ctx context.Context) error {
				return runPostgres(ctx, c)
			},
		},
		{
			Name:    "bootstrap",
			Summary: "create missing roles and schemas, to restore a backup into them",
			Run: func(ctx context.Context) error {
				return alone(ctx, c, func(context.Context, map[string]secret.String) error { return nil })
			},
		},
		{
			Name:    "restored",
			Summary: "reconcile schemas that were restored from a backup, before they serve again",
			Run: func(ctx context.Context) error {
				return alone(ctx, c, func(ctx context.Context, urls map[string]secret.String) error {
					return product.Reconcile(ctx, urls, c.Restored, os.Stdout)
				})
			},
		},
		backup.WriteCommand(func(ctx context.Context, file string) error { return writeBackup(ctx, c, file, os.Stdout) }),
		backup.RestoreCommand(func(ctx context.Context, file string) error { return restoreBackup(ctx, c, file, os.Stdout) }),
		{
			Name:    "reseal",
			Summary: "seal and sign again, with the newest master key, what an older one sealed and signed; the installation may run",
			Run: func(ctx context.Context) error {
				return reseal(ctx, c, os.Stdout)
			},
		},
		{
			Name:    "verify",
			Summary: "check that the log was not altered; the installation may run",
			Run: func(ctx context.Context) error {
				return verifyLog(ctx, c, os.Stdout)
			},
		},
	}
	commands = append(commands, product.MaintenanceCommands(func() product.Maintenance { return c.maintenance(os.Stdout) })...)
	return process.Program{Name: name, Config: &c, Commands: commands, Checks: func() []health.Check { return append(c.checks(), checks...) }}
}
