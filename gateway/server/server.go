// Package server is the program of the gateway, which serves the public API in a process of its own.
package server

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"

	"github.com/ironplane/ironplane/gateway"
	"github.com/ironplane/ironplane/gateway/proxy"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/catalog"
	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/pkg/runtime/process"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/pkg/wake"
)

type config struct {
	Listen string        `env:"IRONPLANE_LISTEN" default:"127.0.0.1:8080" doc:"the address to serve on"`
	Redis  secret.String `env:"REDIS_URL" required:"serve" doc:"the Redis that all gateways and services share: redis://…"`
	Copy   string        `env:"IRONPLANE_TLS_COPY" doc:"a file for a sealed copy of the obtained certificate, which the gateway uses if it starts while the system service is away"`
	Key    secret.String `env:"IRONPLANE_PROCESS_KEY" required:"serve" doc:"the gateway's key, with which it verifies entries in Redis; setup process-key derives it from the master key: ironplane-key-1:…"`
	process.LogConfig
	process.OperationsConfig
	process.MeshConfig
	gateway.Config
	settings.Variables
}

// Program returns the program of the gateway.
func Program() process.Program {
	var c config
	return process.Program{Name: "gateway", Config: &c, Commands: []process.Command{
		{Name: "serve", Summary: "serve the public API until SIGINT or SIGTERM", Run: func(ctx context.Context) error {
			operations := process.NewOperations(principal.Gateway)
			err := operations.Run(
				ctx,
				c.OperationsConfig,
				c.LogConfig,
				func(ctx context.Context, log *slog.Logger) error { return serve(ctx, c, operations, log) },
			)
			if err != nil {
				return fmt.Errorf("gateway: %w", err)
			}
			return nil
		}},
		c.Ready(),
	}, Checks: func() []health.Check { return checks(&c) }}
}

func checks(c *config) []health.Check {
	return slices.Concat([]health.Check{
		{Name: "IRONPLANE_PROCESS_KEY: it is the gateway's", Ask: func(context.Context) error {
			key, err := seal.ParseProcessKey(c.Key, principal.Gateway)
			if err == nil {
				_, err = key.Signer(keycache.Purpose)
			}
			return err
		}},
		{Name: "IRONPLANE_SERVICES: it names all services", Ask: func(context.Context) error { return c.checkServices() }},
		process.CheckRedis(c.Redis),
		process.CheckListen("IRONPLANE_LISTEN", c.Listen),
	}, c.Config.Checks(), c.OperationsConfig.Checks(), c.MeshConfig.Checks(principal.Gateway))
}

// checkServices returns an error if IRONPLANE_SERVICES lacks a service.
func (c *config) checkServices() error {
	for _, name := range catalog.Names() {
		if _, named := c.Services[name]; !named {
			return fmt.Errorf("IRONPLANE_SERVICES does not name %s", name)
		}
	}
	return nil
}

func serve(ctx context.Context, c config, operations *process.Operations, log *slog.Logger) error {
	if err := c.checkServices(); err != nil {
		return err
	}
	for _, name := range catalog.Unknown(slices.Collect(maps.Keys(c.Services))) {
		log.Warn("unknown service in IRONPLANE_SERVICES, its paths return 404 until the gateway is upgraded", "unknown", name)
	}
	key, err := seal.ParseProcessKey(c.Key, principal.Gateway)
	if err != nil {
		return fmt.Errorf("IRONPLANE_PROCESS_KEY: %w", err)
	}
	signer, err := key.Signer(keycache.Purpose)
	if err != nil {
		return fmt.Errorf("IRONPLANE_PROCESS_KEY: %w", err)
	}
	m, err := c.Join(ctx, principal.Gateway, operations, log)
	if err != nil {
		return err
	}
	defer m.Close()
	proxies, upstreams, peers := map[string]*proxy.Upstream{}, map[string]http.Handler{}, m.Identity.NewPeers(nil)
	peers.Unreachable = m.Refresh
	for name := range c.Services {
		proxies[name] = proxy.New(m.Identity, name, nil, log)
		proxies[name].OnUnreachable(func() { m.Refresh(name) })
		upstreams[name] = proxies[name]
	}
	err = m.Find(ctx, func(service string, addresses []string) {
		proxies[service].SetAddresses(addresses)
		peers.SetInstances(service, addresses)
	})
	if err != nil {
		return err
	}
	c.Variables.WarnIgnored(log)
	client, err := operations.OpenRedis(c.Redis)
	if err != nil {
		return err
	}
	defer client.Close()
	wakes := wake.New(client)
	g := gateway.New(c.Config, upstreams, peers, keycache.NewStore(client, signer, log), client, wakes, log)
	defer g.Close()
	waking, stop := context.WithCancel(ctx)
	var woken sync.WaitGroup
	woken.Go(func() { wakes.Run(waking) })
	defer woken.Wait()
	defer stop()
	if c.Copy != "" {
		box, err := key.Box(principal.Gateway)
		if err != nil {
			return fmt.Errorf("IRONPLANE_PROCESS_KEY: %w", err)
		}
		if err := g.KeepCertificate(c.Copy, box); err != nil {
			log.Error("load copy of the certificate failed", "error", err)
		}
	}
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return err
	}
	if listener, err = g.AddTLSListener(listener); err != nil {
		return err
	}
	operations.Check(g.Checks()...)
	operations.MustRegister(g.Metrics()...)
	return m.Serve(ctx, listener, g)
}
