// Package setup is the program that prepares an installation with several processes, in containers or not. The program creates the
// secrets and the certificate of each process, the schemas and roles in PostgreSQL, and the tokens in Consul.
package setup

import (
	"context"
	"io"
	"os"
	"path/filepath"

	"github.com/hashicorp/consul/api"

	"github.com/ironplane/ironplane/deploy/internal/backup"
	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/postgres/provision"
	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/pkg/runtime/maintenance"
	"github.com/ironplane/ironplane/pkg/runtime/process"
	"github.com/ironplane/ironplane/pkg/secret"
)

// config is the configuration of all commands, from environment variables.
type config struct {
	Secrets     string `env:"IRONPLANE_SECRETS" default:"./secrets" doc:"the folder of all secrets; each process has its own folder in it"`
	Postgres    string `env:"IRONPLANE_POSTGRES" default:"127.0.0.1:5432" doc:"the address of PostgreSQL"`
	Redis       string `env:"IRONPLANE_REDIS" default:"127.0.0.1:6379" doc:"the address of Redis"`
	Connections int    `env:"IRONPLANE_ROLE_CONNECTIONS" default:"18" doc:"for bootstrap: how many connections to PostgreSQL all instances of a service may have together: IRONPLANE_CONNECTIONS for each instance, and 3 for commands; 0: leave the roles as they are"`
	Consul      string `env:"CONSUL_URL" doc:"the URL of Consul, such as http://127.0.0.1:8500"`

	Restored product.ReconcileConfig
	Backup   backup.Config
	Store    string `env:"IRONPLANE_STORE" doc:"for backup and restore: the store of drivers and ISOs, as the service pxe has it; empty: the archive gets no store"`

	Reason string `env:"IRONPLANE_MAINTENANCE_REASON" doc:"for maintenance-on and maintenance-file-on: the reason that callers see"`

	Process   string        `env:"IRONPLANE_PROCESS" required:"process-key" doc:"for process-key: gateway, or the name of a service"`
	MasterKey secret.String `env:"IRONPLANE_MASTER_KEY" required:"process-key" doc:"for process-key: the master key, at least 32 random bytes in base64; after a change of keys the newest one, then the older ones, separated by commas"`
}

// Program returns the program setup.
func Program() process.Program {
	var c config
	commands := []process.Command{
		{
			Name: "secrets",
			Summary: "create the missing secrets; with --kubernetes also the missing certificates, and print what processes need as " +
				"Secrets of Kubernetes",
			Run:     func(context.Context) error { return createSecrets(c) },
			Option:  kubernetesOption,
			RunWith: func(context.Context, string) error { return c.printManifests(os.Stdout) },
		},
		{
			Name:    "certificates",
			Summary: "create certificates for all processes if Consul does not; run it again within a year",
			Run:     func(context.Context) error { return c.createCertificates() },
		},
		{
			Name:    "sql",
			Summary: "print SQL that creates the database and its administrator; a superuser of PostgreSQL runs it once",
			Run: func(context.Context) error {
				return c.printSQL(os.Stdout)
			},
		},
		{
			Name:    "bootstrap",
			Summary: "create roles and schemas in PostgreSQL and tokens in Consul; safe to run again",
			Run:     func(ctx context.Context) error { return bootstrap(ctx, c) },
		},
		{Name: "admin-key", Summary: "create an API key for the first admin, and print it", Run: func(ctx context.Context) error {
			return printAdminKey(ctx, c, os.Stdout)
		}},
		{Name: "restored", Summary: "reconcile the services with restored data; stop all services first", Run: func(ctx context.Context) error {
			return reconcile(ctx, c, os.Stdout)
		}},
		backup.WriteCommand(func(ctx context.Context, file string) error { return c.writeBackup(ctx, file, os.Stdout) }),
		backup.RestoreCommand(func(ctx context.Context, file string) error { return c.restoreBackup(ctx, file, os.Stdout) }),
		{
			Name:    "reseal",
			Summary: "seal and sign everything with the newest master key, and print how much is left; services may run meanwhile",
			Run: func(ctx context.Context) error {
				password, err := c.readSecret("postgres-password")
				if err != nil {
					return err
				}
				masterKey, err := c.readSecret("master-key")
				if err != nil {
					return err
				}
				return product.Reseal(ctx, secret.New(c.adminURL(password)), masterKey, os.Stdout)
			},
		},
		{
			Name:    "process-key",
			Summary: "derive a process' key from the master key, and print it; for installations that create secrets by other means",
			Run: func(context.Context) error {
				return printProcessKey(c, os.Stdout)
			},
		},
	}
	commands = append(commands, product.MaintenanceCommands(func() product.Maintenance { return c.maintenance(os.Stdout) })...)
	return process.Program{Name: "setup", Config: &c, Commands: commands, Checks: c.checks}
}

// checks returns the checks that bootstrap needs to pass. All but the first fail until the command secrets has run.
func (c *config) checks() []health.Check {
	checks := []health.Check{
		{Name: "IRONPLANE_SECRETS: " + c.Secrets + " has the secrets", Ask: func(context.Context) error {
			_, err := c.readSecret("master-key")
			return err
		}},
		{Name: "IRONPLANE_POSTGRES: roles and schemas exist, or can be created", Ask: func(ctx context.Context) error {
			admin, roles, err := c.postgres()
			if err != nil {
				return err
			}
			return provision.Check(ctx, admin, rolePrefix, roles)
		}},
		{Name: "IRONPLANE_REDIS: it answers", Ask: func(ctx context.Context) error {
			password, err := c.readSecret("redis-password")
			if err != nil {
				return err
			}
			return process.CheckRedis(c.redisURL(watcher, password)).Ask(ctx)
		}},
	}
	if c.Consul != "" {
		checks = append(checks, health.Check{Name: "CONSUL_URL: it accepts the management token", Ask: func(ctx context.Context) error {
			client, err := c.newConsulClient()
			if err != nil {
				return err
			}
			_, _, err = client.ACL().PolicyList((&api.QueryOptions{}).WithContext(ctx))
			return err
		}})
	}
	return checks
}

// maintenance returns what the commands of maintenance work on.
func (c config) maintenance(screen io.Writer) product.Maintenance {
	m := product.Maintenance{Reason: c.Reason, Screen: screen}
	for _, name := range processes() {
		m.Files = append(m.Files, maintenance.File(filepath.Join(c.Secrets, name, "maintenance")))
	}
	m.AsAdministrator = func(ctx context.Context, do func(context.Context, secret.String) error) error {
		ctx, cancel := context.WithTimeout(ctx, bootstrapTimeout)
		defer cancel()
		password, err := c.readSecret("postgres-password")
		if err != nil {
			return err
		}
		return do(ctx, secret.New(c.adminURL(password)))
	}
	return m
}
