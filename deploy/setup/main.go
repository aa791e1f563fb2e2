// Setup prepares an installation whose processes are apart, in containers or without: it makes the secrets of each process and
// its certificate, and what Postgres and Consul have to know of them.
package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/hashicorp/consul/api"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/postgres/provision"
	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/pkg/runtime/maintenance"
	"github.com/ironplane/ironplane/pkg/runtime/process"
	"github.com/ironplane/ironplane/pkg/secret"
)

type config struct {
	Secrets  string `env:"IRONPLANE_SECRETS" default:"./secrets" doc:"the folder of the secrets, with a folder in it for each process"`
	Postgres string `env:"IRONPLANE_POSTGRES" default:"127.0.0.1:5432" doc:"where Postgres is"`
	Redis    string `env:"IRONPLANE_REDIS" default:"127.0.0.1:6379" doc:"where Redis is"`
	Consul   string `env:"CONSUL_URL" doc:"where Consul is, if there is one: http://127.0.0.1:8500"`

	Restored product.RestoredConfig

	Reason string `env:"IRONPLANE_MAINTENANCE_REASON" doc:"for maintenance-on: what callers are told"`

	Process   string        `env:"IRONPLANE_PROCESS" required:"process-key" doc:"whose key to print: gateway, or a service's name"`
	MasterKey secret.String `env:"IRONPLANE_MASTER_KEY" required:"process-key" doc:"what keys are derived from: 32 random bytes or more in base64; after a change of keys the old ones behind it, with commas"`
}

func main() {
	var c config
	process.Program{Name: "setup", Config: &c, Commands: []process.Command{
		{
			Name:    "secrets",
			Summary: "make the secrets that are not there yet, in files",
			Run:     func(context.Context) error { return makeSecrets(c) },
		},
		{
			Name:    "certificates",
			Summary: "make certificates for all processes, where no Consul does; again before the year is over",
			Run:     func(context.Context) error { return c.certify() },
		},
		{
			Name:    "sql",
			Summary: "print what a superuser of PostgreSQL has to run once: it makes the database, and who administers it",
			Run: func(context.Context) error {
				return c.printSQL(os.Stdout)
			},
		},
		{
			Name:    "bootstrap",
			Summary: "tell Postgres and Consul what they have to know; at any time again",
			Run:     func(ctx context.Context) error { return bootstrap(ctx, c) },
		},
		{Name: "admin-key", Summary: "make a key for the first admin, and print it", Run: func(ctx context.Context) error {
			return printAdminKey(ctx, c, os.Stdout)
		}},
		{Name: "restored", Summary: "take up what was restored from a backup, while no service runs", Run: func(ctx context.Context) error {
			return takeUp(ctx, c, os.Stdout)
		}},
		{
			Name:    "reseal",
			Summary: "seal and sign with the newest master key what was with an older one, and say how much is left; also while the services run",
			Run: func(ctx context.Context) error {
				password, err := c.kept("postgres-password")
				if err != nil {
					return err
				}
				masterKey, err := c.kept("master-key")
				if err != nil {
					return err
				}
				return product.Reseal(ctx, secret.New(c.administrator(password)), masterKey, os.Stdout)
			},
		},
		{
			Name:    "maintenance-on",
			Summary: "have all processes refuse changes, and let jobs pause, until maintenance-off",
			Run: func(context.Context) error {
				return c.ofAll(func(f maintenance.File) error { return f.Begin(c.Reason) })
			},
		},
		{Name: "maintenance-off", Summary: "end that", Run: func(context.Context) error { return c.ofAll(maintenance.File.End) }},
		{
			Name:    "process-key",
			Summary: "derive a process' key from the master key, and print it: for who makes secrets otherwise",
			Run: func(context.Context) error {
				return printProcessKey(c, os.Stdout)
			},
		},
	}, Checks: c.checks}.Main()
}

// checks are of what bootstrap needs. Before there are secrets, nobody is known by one.
func (c *config) checks() []health.Check {
	checks := []health.Check{
		{Name: "IRONPLANE_SECRETS: " + c.Secrets + " has secrets", Ask: func(context.Context) error {
			_, err := c.kept("master-key")
			return err
		}},
		{Name: "IRONPLANE_POSTGRES: all is there that services need, or may be made", Ask: func(ctx context.Context) error {
			admin, passwords, err := c.postgres()
			if err != nil {
				return err
			}
			return provision.Check(ctx, admin, rolePrefix, passwords)
		}},
		{Name: "IRONPLANE_REDIS: it answers", Ask: func(ctx context.Context) error {
			password, err := c.kept("redis-password")
			if err != nil {
				return err
			}
			return process.CheckRedis(c.redisURL(watcher, password)).Ask(ctx)
		}},
	}
	if c.Consul != "" {
		checks = append(checks, health.Check{Name: "CONSUL_URL: it lets this program make tokens", Ask: func(ctx context.Context) error {
			client, err := c.manageConsul()
			if err != nil {
				return err
			}
			_, _, err = client.ACL().PolicyList((&api.QueryOptions{}).WithContext(ctx))
			return err
		}})
	}
	return checks
}

// ofAll does something to the file of each process that says whether there is maintenance.
func (c config) ofAll(do func(maintenance.File) error) (failed error) {
	for _, name := range processes() {
		failed = errors.Join(failed, do(maintenance.File(filepath.Join(c.Secrets, name, "maintenance"))))
	}
	return failed
}
