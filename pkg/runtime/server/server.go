// Package server is the program of a service that runs in a process of its own, behind the gateway.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"

	"github.com/ironplane/ironplane/pkg/catalog"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/pkg/runtime/host"
	"github.com/ironplane/ironplane/pkg/runtime/maintenance"
	"github.com/ironplane/ironplane/pkg/runtime/mtls"
	"github.com/ironplane/ironplane/pkg/runtime/process"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/pkg/wake"
)

// definition adds to a service what only its program does.
type definition struct{ service.Definition }

type serviceConfig struct {
	Listen      string           `env:"IRONPLANE_LISTEN" default:"127.0.0.1:8443" doc:"the address to listen on for the gateway and other services"`
	Database    secret.String    `env:"DATABASE_URL" required:"serve,migrate,skip-change,verify,reseal" doc:"the URL of the database, with the role that owns the service's schema: postgres://…"`
	Direct      secret.String    `env:"DATABASE_DIRECT_URL" doc:"if DATABASE_URL is that of a pooler such as PgBouncer: the URL of PostgreSQL itself, for migrations"`
	Mode        pool.QueryMode   `env:"IRONPLANE_QUERY_EXEC_MODE" default:"cache_statement" doc:"how statements are sent: cache_statement prepares them; cache_describe works with poolers that do not keep prepared statements"`
	Connections int              `env:"IRONPLANE_CONNECTIONS" default:"5" doc:"the largest number of connections to the database"`
	Redis       secret.String    `env:"REDIS_URL" required:"serve" doc:"the URL of the Redis that all gateways and services share: redis://…"`
	Skip        events.Span      `env:"IRONPLANE_SKIP_CHANGE" required:"skip-change" doc:"the changes of another service to skip: pxe:17 or pxe:17-20; or the id of a message of this service to give up: clients:8f14e45f-…"`
	Maintenance maintenance.File `env:"IRONPLANE_MAINTENANCE" doc:"a file: while it exists, changes are refused with its text as the reason, and jobs pause"`
	service.Settings
	settings.Variables
	process.LogConfig
	process.OperationsConfig
	process.MeshConfig
}

// keyedConfig is the configuration of a service that seals or signs.
type keyedConfig struct {
	serviceConfig
	Key secret.String `env:"IRONPLANE_PROCESS_KEY" required:"serve,verify,skip-change,reseal" doc:"the key with which this service seals and signs, derived from the master key by setup process-key: ironplane-key-1:…"`
}

// unlock sets in deps what the service does with the configured key.
func (d definition) unlock(deps *service.Deps, c keyedConfig) error {
	if len(d.Purposes()) == 0 {
		return nil
	}
	key, err := seal.ParseProcessKey(c.Key, d.Name)
	if err == nil {
		err = host.Unlock(d.Definition, deps, key)
	}
	if err != nil {
		return fmt.Errorf("IRONPLANE_PROCESS_KEY: %w", err)
	}
	return nil
}

// Program returns the program of a service.
func Program(declared service.Definition) process.Program {
	d := definition{declared}
	var c keyedConfig
	config := any(&c)
	if len(d.Purposes()) == 0 {
		config = &c.serviceConfig
	}
	commands := []process.Command{
		{Name: "serve", Summary: "serve requests from the gateway until SIGINT or SIGTERM", Run: func(ctx context.Context) error {
			operations := process.NewOperations(d.Name)
			return d.wrapError(
				operations.Run(
					ctx,
					c.OperationsConfig,
					c.LogConfig,
					func(ctx context.Context, log *slog.Logger) error { return d.serve(ctx, c, operations, log) },
				),
			)
		}},
		{
			Name:    "migrate",
			Summary: "bring the schema up to date; run it before serve",
			Run:     func(ctx context.Context) error { return d.wrapError(d.migrate(ctx, c)) },
		},
		c.Ready(),
		{
			Name: "skip-change",
			Summary: "skip a change of another service that this one cannot apply, or give up a message that its receiver cannot accept; also " +
				"while the service runs",
			Run: func(ctx context.Context) error {
				return d.wrapError(d.runCommand(ctx, c, service.Command{Run: func(ctx context.Context, deps service.Deps, _ io.Writer) error {
					return host.SkipChange(ctx, d.Definition, deps, c.Skip)
				}}))
			},
		},
	}
	if d.Seals || len(d.Sends) > 0 {
		commands = append(
			commands,
			process.Command{
				Name:    "reseal",
				Summary: "seal and sign again with the newest key whatever uses an older one, and print how much is left; also while the service runs",
				Run: func(ctx context.Context) error {
					return d.wrapError(d.runCommand(ctx, c, service.Command{Run: func(ctx context.Context, deps service.Deps, screen io.Writer) error {
						return host.Reseal(ctx, d.Definition, deps, screen)
					}}))
				},
			},
		)
	}
	for _, command := range d.Commands {
		commands = append(
			commands,
			process.Command{
				Name:    command.Name,
				Summary: command.Summary,
				Run:     func(ctx context.Context) error { return d.wrapError(d.runCommand(ctx, c, command)) },
			},
		)
	}
	return process.Program{
		Name:     d.Name,
		Service:  d.Name,
		Config:   config,
		Commands: commands,
		Checks:   func() []health.Check { return d.checks(&c) },
	}
}

func (d definition) checks(c *keyedConfig) (checks []health.Check) {
	var deps service.Deps
	if len(d.Purposes()) > 0 {
		err := d.unlock(&deps, *c)
		checks = append(
			checks,
			health.Check{Name: "IRONPLANE_PROCESS_KEY: valid, and for this service", Ask: func(context.Context) error { return err }},
		)
	}
	if d.Checks != nil {
		checks = append(checks, d.Checks(c.Settings)...)
	}
	return slices.Concat(checks,
		host.Checks(d.Definition, c.Database, c.Connections, c.poolOptions(), deps.Box),
		[]health.Check{process.CheckRedis(c.Redis), process.CheckListen("IRONPLANE_LISTEN", c.Listen)},
		c.OperationsConfig.Checks(), c.MeshConfig.Checks(d.Name))
}

func (d definition) runCommand(ctx context.Context, c keyedConfig, command service.Command) error {
	deps := service.Deps{Settings: c.Settings}
	if err := d.unlock(&deps, c); err != nil {
		return err
	}
	db, err := pool.Open(ctx, c.Database.Reveal(), 1, c.poolOptions())
	if err != nil {
		return err
	}
	defer db.Close()
	deps.DB = db.DB
	return command.Run(ctx, deps, os.Stdout)
}

func (d definition) wrapError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", d.Name, err)
}

func (d definition) migrate(ctx context.Context, c keyedConfig) error {
	db, err := pool.Open(ctx, c.Database.Reveal(), 1, c.poolOptions())
	if err != nil {
		return err
	}
	defer db.Close()
	log, closeLog := c.Log(d.Name)
	defer closeLog()
	return host.Migrate(ctx, d.Definition, db, log)
}

func (c serviceConfig) poolOptions() pool.Options {
	return pool.Options{Direct: c.Direct, Mode: c.Mode}
}

// checkConnections logs if the database allows fewer connections than the pool may open. Behind a pooler it fails unless the
// direct URL works: the pooler limits the connections then.
func (c serviceConfig) checkConnections(ctx context.Context, on *pool.Pool, log *slog.Logger) error {
	if !c.Direct.IsZero() {
		conn, err := on.Connect(ctx)
		if err != nil {
			return fmt.Errorf("DATABASE_DIRECT_URL: %w", err)
		}
		return conn.Close(ctx)
	}
	short, err := on.Shortage(ctx)
	if short != "" {
		log.Warn("the database allows too few connections", "reason", short)
	}
	return err
}

// warnOfVersions logs what processes of other versions may not know of this service, and which configured services this
// version does not know.
func (d definition) warnOfVersions(c keyedConfig, routes []rest.Route, log *slog.Logger) {
	if err := errors.Join(d.Entry().Check(), d.CheckRoutes(routes)); err != nil {
		log.Warn("service is not fully registered", "error", err)
	}
	for _, name := range catalog.Unknown(slices.Collect(maps.Keys(c.Services))) {
		log.Warn("unknown service in IRONPLANE_SERVICES: the log and webhooks have no changes of it until this process is upgraded",
			"unknown", name)
	}
}

func (d definition) serve(ctx context.Context, c keyedConfig, operations *process.Operations, log *slog.Logger) error {
	if d.Name != settings.ServiceName {
		c.Variables.WarnIgnored(log)
	}
	client, err := operations.OpenRedis(c.Redis)
	if err != nil {
		return err
	}
	defer client.Close()
	deps := service.Deps{Redis: client, Wakes: wake.New(client), Settings: c.Settings, Variables: c.Variables.NonEmpty(), Log: log}
	if err := d.unlock(&deps, c); err != nil {
		return err
	}
	m, err := c.Join(ctx, d.Name, operations, log)
	if err != nil {
		return err
	}
	defer m.Close()
	on, err := pool.Open(ctx, c.Database.Reveal(), c.Connections, c.poolOptions())
	if err != nil {
		return err
	}
	defer on.Close()
	on.FollowURL(c.Database)
	defer operations.OnHangup(on.Renew)()
	if err := c.checkConnections(ctx, on, log); err != nil {
		return err
	}
	deps.DB = on.DB
	if err := host.Prepare(ctx, d.Definition, deps); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return err
	}
	command := map[string]http.Handler{} // the service asks itself directly
	others := m.Identity.NewPeers(command)
	others.Unreachable = m.Refresh
	deps.Peers = others
	if err := m.Find(ctx, others.SetInstances); err != nil {
		return err
	}
	assembled, err := host.Assemble(ctx, d.Definition, on, deps, c.Maintenance)
	if err != nil {
		return err
	}
	command[d.Name] = assembled
	d.warnOfVersions(c, assembled.Routes, log)
	assembled.Expose(operations)
	working, stop := context.WithCancel(ctx)
	var jobs sync.WaitGroup
	jobs.Go(func() { deps.Wakes.Run(working) })
	jobs.Go(func() { assembled.Work(working) })
	defer jobs.Wait()
	defer stop()
	return m.Serve(ctx, m.Identity.Listener(listener), mtls.Receive(assembled, log))
}
