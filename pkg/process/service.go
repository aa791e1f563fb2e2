package process

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"sync"

	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/mesh"
	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/principal/entry"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
)

// Service is one of the services as a program of its own, behind the gateway's.
type Service struct {
	Name       string
	Migrations fs.FS                                   // nil: none of its own
	Routes     func(*pg.DB, *entry.Store) []rest.Route // nil: none yet
}

type serviceConfig struct {
	Listen      string        `env:"IRONPLANE_LISTEN" default:"127.0.0.1:8443" doc:"the address to serve the gateway on"`
	Database    secret.String `env:"DATABASE_URL" required:"serve,migrate" doc:"the service's schema, as the role that owns it: postgres://…?search_path=<service>,ext"`
	Connections int           `env:"IRONPLANE_CONNECTIONS" default:"8" doc:"how many connections to the database there may be"`
	Redis       secret.String `env:"REDIS_URL" required:"serve" doc:"the Redis of all gateways and services: redis://…"`
	LogLevel    slog.Level    `env:"IRONPLANE_LOG_LEVEL" default:"WARN" doc:"DEBUG, INFO, WARN or ERROR"`
	mesh.Files
}

// Main is the main of the service.
func (s Service) Main() {
	var c serviceConfig
	Program{Name: s.Name, Config: &c, Commands: []Command{
		{"serve", "serve the gateway until SIGINT or SIGTERM", func(ctx context.Context) error { return s.named(s.serve(ctx, c)) }},
		{"migrate", "bring the schema up to date, which serve expects", func(ctx context.Context) error { return s.named(s.migrate(ctx, c)) }},
	}}.Main()
}

func (s Service) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", s.Name, err)
}

func (s Service) migrate(ctx context.Context, c serviceConfig) error {
	db, err := pg.Open(ctx, c.Database.Reveal(), 2) // goose holds one for its lock
	if err != nil {
		return err
	}
	defer db.Close()
	return db.Migrate(ctx, s.Name, s.Migrations)
}

func (s Service) serve(ctx context.Context, c serviceConfig) error {
	id, err := mesh.Load(s.Name, c.Files)
	if err != nil {
		return err
	}
	client, err := cache.Open(c.Redis)
	if err != nil {
		return fmt.Errorf("REDIS_URL: %w", err)
	}
	defer client.Close()
	db, err := pg.Open(ctx, c.Database.Reveal(), c.Connections)
	if err != nil {
		return err
	}
	defer db.Close()
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return err
	}
	log := Log(c.LogLevel).With("service", s.Name)
	var routes []rest.Route
	if s.Routes != nil {
		routes = s.Routes(db, entry.NewStore(client, log))
	}
	sweeping, stop := context.WithCancel(ctx)
	var sweep sync.WaitGroup
	sweep.Go(func() { rest.Sweep(sweeping, s.Name, db, log) })
	defer sweep.Wait()
	defer stop()
	return Serve(ctx, id.Listener(listener), mesh.Receive(rest.NewHandler(s.Name, db, log, routes), log), log)
}
