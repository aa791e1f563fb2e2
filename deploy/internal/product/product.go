// Package product puts the services and the gateway together in one process.
package product

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"

	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/runtime/host"
	"github.com/ironplane/ironplane/pkg/runtime/peers"

	"github.com/ironplane/ironplane/gateway"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/maintenance"
	"github.com/ironplane/ironplane/pkg/runtime/process"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/pkg/wake"
	"github.com/ironplane/ironplane/services/clients"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/network"
	"github.com/ironplane/ironplane/services/pxe"
	"github.com/ironplane/ironplane/services/system"
)

// Services are the definitions of all services.
var Services = []service.Definition{clients.Definition, identity.Definition, network.Definition, pxe.Definition, system.Definition}

// Names returns the names of all services.
func Names() []string {
	names := make([]string, len(Services))
	for i, s := range Services {
		names[i] = s.Name
	}
	return names
}

// connections is how many connections each service's pool may open.
const connections = 8

// Product is the running product.
type Product struct {
	Gateway   *gateway.Gateway
	Services  map[string]http.Handler // by name
	Routes    map[string][]rest.Route
	Databases map[string]*pg.DB

	// Maintenance is the file that switches maintenance on, for the services and for the gateways.
	Maintenance maintenance.File

	entries  *seal.Signer // checks the cache entries that gateways read
	wakes    *wake.Bus
	services []*host.Service
	pools    []*pool.Pool
	working  sync.WaitGroup
	stop     context.CancelFunc
}

// Open connects each service to its schema, migrates it, and starts a gateway in front. urls are the schemas' URLs by the
// service's name. The services share the master key and the client, which comes from cache.Open.
func Open(
	ctx context.Context,
	urls map[string]secret.String,
	masterKey secret.String,
	settings service.Settings,
	variables settings.Variables,
	client *cache.Client,
	config gateway.Config,
	log *slog.Logger,
) (_ *Product, err error) {
	p := &Product{
		Services:    map[string]http.Handler{},
		Routes:      map[string][]rest.Route{},
		Databases:   map[string]*pg.DB{},
		Maintenance: config.Maintenance,
	}
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.stop = stop
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	p.wakes = wake.New(client)
	p.wakes.Interval = settings.Tuning.PollInterval
	keys, err := DeriveProcessKeys(masterKey)
	if err != nil {
		return nil, err
	}
	for _, d := range Services {
		others := peers.New(d.Name, p.Services)
		others.MinTimeout = settings.Tuning.MinTimeout
		deps := service.Deps{
			Peers:     others,
			Redis:     client,
			Wakes:     p.wakes,
			Settings:  settings,
			Variables: variables.NonEmpty(),
			Log:       log.With("service", d.Name),
		}
		if err := host.Unlock(d, &deps, keys[d.Name]); err != nil {
			return nil, fmt.Errorf("start %s: %w", d.Name, err)
		}
		if err := p.start(ctx, d, urls[d.Name], deps); err != nil {
			return nil, fmt.Errorf("start %s: %w", d.Name, err)
		}
	}
	if p.entries, err = keys[principal.Gateway].Signer(keycache.Purpose); err != nil {
		return nil, err
	}
	others := peers.New(principal.Gateway, p.Services)
	others.MinTimeout = settings.Tuning.MinTimeout
	p.Gateway = p.NewGateway(config, p.Services, others, client, log)
	p.working.Go(func() { p.wakes.Run(working) })
	for _, service := range p.services {
		p.working.Go(func() { service.Work(working) })
	}
	return p, nil
}

// start opens a service's pool, migrates its schema and assembles the service. Its tasks do not run yet.
func (p *Product) start(ctx context.Context, d service.Definition, url secret.String, deps service.Deps) error {
	db, err := pool.Open(ctx, url.Reveal(), connections, d.PoolOptions(deps.Tuning))
	if err != nil {
		return err
	}
	db.FollowURL(url)
	p.Databases[d.Name], p.pools = db.DB, append(p.pools, db)
	if err := host.Migrate(ctx, d, db, deps.Log); err != nil {
		return err
	}
	deps.DB = db.DB
	if err := host.Prepare(ctx, d, deps); err != nil {
		return err
	}
	started, err := host.Assemble(ctx, d, db, deps, p.Maintenance)
	if err != nil {
		return err
	}
	if err := errors.Join(d.Entry().Check(), d.CheckRoutes(started.Routes)); err != nil {
		return err
	}
	p.Services[d.Name], p.Routes[d.Name] = started, started.Routes
	p.services = append(p.services, started)
	return nil
}

// NewGateway returns another gateway in front of the product's services, which it reaches by upstreams and peers.
func (p *Product) NewGateway(
	config gateway.Config,
	upstreams map[string]http.Handler,
	peers *peers.Peers,
	client *cache.Client,
	log *slog.Logger,
) *gateway.Gateway {
	config.Maintenance = p.Maintenance
	log = log.With("service", principal.Gateway)
	return gateway.New(config, upstreams, peers, keycache.NewStore(client, p.entries, log), client, p.wakes, log)
}

// Show adds the product's metrics and health checks to the operations listener.
func (p *Product) Show(o *process.Operations) {
	o.MustRegister(p.Gateway.Metrics()...)
	for _, service := range p.services {
		service.Expose(o)
	}
}

// Renew opens new connections to the database with the passwords that the files hold now, in place of the present ones.
func (p *Product) Renew() {
	for _, pool := range p.pools {
		pool.Renew()
	}
}

// Close stops the tasks, waits for requests and jobs that have begun, and closes the pools.
func (p *Product) Close() {
	p.stop()
	p.working.Wait()
	if p.Gateway != nil {
		p.Gateway.Close()
	}
	for _, pool := range p.pools {
		pool.Close()
	}
}
