// Package product puts the services and the gateway together in one process.
package product

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/ironplane/ironplane/gateway"
	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/principal/entry"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/clients"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/network"
	"github.com/ironplane/ironplane/services/pxe"
	"github.com/ironplane/ironplane/services/system"
)

// Service is one of the services as the product knows it.
type Service struct {
	Name       string
	Migrations fs.FS
	routes     func(*Product, *pg.DB) []rest.Route // nil: none yet
}

// Services are all of them.
var Services = []Service{
	{clients.Name, nil, nil},
	{identity.Name, identity.Migrations, func(p *Product, db *pg.DB) []rest.Route {
		return identity.New(db, p.entries).Routes()
	}},
	{network.Name, network.Migrations, func(_ *Product, db *pg.DB) []rest.Route { return network.New(db).Routes() }},
	{pxe.Name, nil, nil},
	{system.Name, nil, nil},
}

// Names are the names of all services.
func Names() []string {
	names := make([]string, len(Services))
	for i, s := range Services {
		names[i] = s.Name
	}
	return names
}

// connections is how many each service's pool may open.
const connections = 8

// Product is the running product.
type Product struct {
	Gateway   *gateway.Gateway
	Services  map[string]http.Handler // by name
	Routes    map[string][]rest.Route
	Databases map[string]*pg.DB

	entries  *entry.Store
	sweeping sync.WaitGroup
	stop     context.CancelFunc
}

// Open connects each service to its schema, migrates it, and puts the gateway in front. urls are by the service's
// name; the client, which cache.Open made, is for all of them.
func Open(ctx context.Context, urls map[string]secret.String, client redis.UniversalClient, limits gateway.Config, log *slog.Logger) (p *Product, err error) {
	p = &Product{Services: map[string]http.Handler{}, Routes: map[string][]rest.Route{}, Databases: map[string]*pg.DB{}, entries: entry.NewStore(client, log)}
	sweeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.stop = stop
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	for _, s := range Services {
		db, err := pg.Open(ctx, urls[s.Name].Reveal(), connections)
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", s.Name, err)
		}
		p.Databases[s.Name] = db
		if err := db.Migrate(ctx, s.Name, s.Migrations); err != nil {
			return nil, err
		}
		if s.routes != nil {
			p.Routes[s.Name] = s.routes(p, db)
		}
		p.sweeping.Go(func() { rest.Sweep(sweeping, s.Name, db, log) })
		p.Services[s.Name] = rest.NewHandler(s.Name, db, log, p.Routes[s.Name])
	}
	p.Gateway, err = gateway.New(limits, p.Services, client, log)
	return p, err
}

// Close waits for what is under way and closes the pools.
func (p *Product) Close() {
	p.stop()
	p.sweeping.Wait()
	for _, db := range p.Databases {
		db.Close()
	}
}
