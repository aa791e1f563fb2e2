// Package startup is what the programs share that run a whole installation on one machine: its settings, its commands,
// and what is there before the services start and ends after them.
package startup

import (
	"cmp"
	"context"
	"os"
	"path/filepath"

	"github.com/ironplane/ironplane/deploy/internal/backings"
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

// Config is what the environment says.
type Config struct {
	Listen       string `env:"IRONPLANE_LISTEN" default:"127.0.0.1:8080" doc:"the address to serve on"`
	AdminKeyFile string `env:"IRONPLANE_ADMIN_KEY_FILE" doc:"where the first admin's key goes (mode 0600), instead of to the screen"`
	Backings     backings.Config
	Skip         events.Span `env:"IRONPLANE_SKIP_CHANGE" required:"skip-change" doc:"the changes of a service that others cannot apply: pxe:17, or pxe:17-20; or its message that another cannot take, by its id: clients:8f14e45f-…"`
	Restored     product.RestoredConfig
	Reason       string `env:"IRONPLANE_MAINTENANCE_REASON" doc:"for maintenance-on: what callers are told"`
	service.Settings
	settings.Variables
	process.LogConfig
	process.OperationsConfig
	Gateway gateway.Config
}

// maintenance is the file that the services look at: in the data folder, where none is given.
func (c Config) maintenance() maintenance.File {
	return cmp.Or(c.Gateway.Maintenance, maintenance.File(filepath.Join(c.Backings.Data, "maintenance")))
}

// Main is the main of a program of this name: the command run, which needs what the checks are of besides its configuration,
// and those that look after an installation, whether it runs or not.
func Main(name string, run func(context.Context, Config) error, checks ...health.Check) {
	var c Config
	process.Program{Name: name, Config: &c, Commands: []process.Command{
		{Name: "run", Summary: "start and serve until SIGINT or SIGTERM", Run: func(ctx context.Context) error {
			c.Gateway.Maintenance = c.maintenance()
			c.Store = cmp.Or(c.Store, filepath.Join(c.Backings.Data, "store"))
			return run(ctx, c)
		}},
		{
			Name:    "admin-key",
			Summary: "make another key for the first admin, and print it; also while the installation runs",
			Run: func(ctx context.Context) error {
				return printAdminKey(ctx, c, os.Stdout)
			},
		},
		{
			Name:    "skip-change",
			Summary: "let services go on behind a change, or without a message, of another that they cannot apply; also while the installation runs",
			Run: func(ctx context.Context) error {
				return skipChange(ctx, c)
			},
		},
		{
			Name:    "postgres",
			Summary: "start its own PostgreSQL alone until SIGINT or SIGTERM, to restore into it",
			Run: func(ctx context.Context) error {
				return runPostgres(ctx, c)
			},
		},
		{
			Name:    "bootstrap",
			Summary: "make the roles, and the schemas that are not there, which a backup is restored into",
			Run: func(ctx context.Context) error {
				return alone(ctx, c, func(context.Context, map[string]secret.String) error { return nil })
			},
		},
		{Name: "restored", Summary: "take up what was restored from a backup, before it serves again", Run: func(ctx context.Context) error {
			return alone(ctx, c, func(ctx context.Context, urls map[string]secret.String) error {
				return product.TakeUp(ctx, urls, c.Restored, os.Stdout)
			})
		}},
		{
			Name: "reseal",
			Summary: "seal and sign with the newest master key what was with an older one, and say how much is left; also while the " +
				"installation runs",
			Run: func(ctx context.Context) error {
				return reseal(ctx, c, os.Stdout)
			},
		},
		{Name: "maintenance-on", Summary: "refuse changes, and let jobs pause, until maintenance-off", Run: func(context.Context) error {
			return c.maintenance().Begin(c.Reason)
		}},
		{Name: "maintenance-off", Summary: "end that", Run: func(context.Context) error { return c.maintenance().End() }},
		{
			Name:    "verify",
			Summary: "tell whether the log is as it was written; also while the installation runs",
			Run: func(ctx context.Context) error {
				return verifyLog(ctx, c, os.Stdout)
			},
		},
	}, Checks: func() []health.Check { return append(c.checks(), checks...) }}.Main()
}
