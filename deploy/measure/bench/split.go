package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/gateway"
	"github.com/ironplane/ironplane/gateway/proxy"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/devservers"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/mtls"
	"github.com/ironplane/ironplane/pkg/runtime/process"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/admin"
	"github.com/ironplane/ironplane/services/network"
)

// member is what a server is told that is one process of several.
type member struct {
	Name     string
	Files    mtls.Files
	Redis    string
	Key      string            // the process' key, as text
	Services map[string]string // of the gateway: the services' addresses by their names
}

// splitServices are the services that take part: the one that is read, and the one that knows the key.
var splitServices = []string{network.Name, identity.Name}

// serveSplit has the gateway and the services take part as processes that talk over mTLS. The database has an admin.
func (l *lineup) serveSplit(ctx context.Context) (err error) {
	if l.redis, err = devservers.StartRedis(ctx, devservers.RedisOptions{}); err != nil {
		return err
	}
	authority, err := mtls.NewAuthority(24 * time.Hour)
	if err != nil {
		return err
	}
	keys, err := product.DeriveProcessKeys(seal.NewMasterKey())
	if err != nil {
		return err
	}
	services := map[string]string{}
	for _, name := range splitServices {
		r, err := l.serveMember(ctx, authority, "split-service", member{Name: name, Key: keys[name].Text().Reveal()})
		if err != nil {
			return err
		}
		services[name] = r.Address
	}
	door, err := l.serveMember(
		ctx,
		authority,
		"split-gateway",
		member{Name: principal.Gateway, Key: keys[principal.Gateway].Text().Reveal(), Services: services},
	)
	if err != nil {
		return err
	}
	if door.Key, err = l.database.newKey(ctx); err != nil {
		return err
	}
	l.add(splitName, door)
	return nil
}

func (l *lineup) serveMember(ctx context.Context, authority *mtls.Authority, kind string, m member) (ready, error) {
	files, err := l.identify(authority, m.Name)
	if err != nil {
		return ready{}, err
	}
	m.Files, m.Redis = files, l.redis.URL()
	r, server, err := startServer(ctx, kind, order{Databases: l.database.urls, Profile: l.profile("split-" + m.Name), Member: m})
	if err != nil {
		return ready{}, fmt.Errorf("start the process of the %s: %w", m.Name, err)
	}
	l.servers = append(l.servers, server)
	return r, nil
}

// identify writes down a process's identity.
func (l *lineup) identify(authority *mtls.Authority, name string) (mtls.Files, error) {
	issued, err := authority.Issue(name)
	if err != nil {
		return mtls.Files{}, err
	}
	place := func(suffix string) string { return filepath.Join(l.folder, name+suffix) }
	files := mtls.Files{Certificate: place(".crt"), Key: place(".key"), CA: place(".ca")}
	for file, content := range map[string][]byte{
		files.Certificate: issued.Certificate, files.Key: []byte(issued.Key.Reveal()), files.CA: authority.Certificate(),
	} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return mtls.Files{}, fmt.Errorf("write down the identity of %s: %w", name, err)
		}
	}
	return files, nil
}

func (db *database) newKey(ctx context.Context) (string, error) {
	own, err := pool.Open(ctx, db.urls[identity.Name], 1, nil)
	if err != nil {
		return "", err
	}
	defer own.Close()
	key, _, err := admin.CreateKey(ctx, own.DB)
	return key.Reveal(), err
}

// serveSplitService is one service behind the gateway of another process.
func serveSplitService(ctx context.Context, o order, say announce) error {
	id, err := mtls.Load(o.Member.Name, o.Member.Files)
	if err != nil {
		return err
	}
	client, err := cache.Open(secret.New(o.Member.Redis))
	if err != nil {
		return err
	}
	defer client.Close()
	served := network.Definition
	if o.Member.Name == identity.Name {
		served = identity.Definition
	}
	db, err := pool.Open(ctx, o.Databases[served.Name], poolSize, served.Parameters)
	if err != nil {
		return err
	}
	defer db.Close()
	routes := network.New(db.DB, nil, nil).Routes()
	if served.Name == identity.Name {
		entries, err := o.Member.entries(client)
		if err != nil {
			return err
		}
		routes = identity.New(service.Deps{DB: db.DB, Entries: entries, Redis: client, Log: log}).Routes()
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if err := say(ready{Address: listener.Addr().String()}); err != nil {
		return fmt.Errorf("say that it is ready: %w", err)
	}
	return process.Serve(ctx, id.Listener(listener), mtls.Receive(rest.NewHandler(o.Member.Name, db.DB, log, routes), log), log)
}

func (m member) entries(client *cache.Client) (*keycache.Store, error) {
	key, err := seal.ParseProcessKey(secret.New(m.Key), m.Name)
	if err != nil {
		return nil, err
	}
	signer, err := key.Signer(keycache.Purpose)
	return keycache.NewStore(client, signer, log), err
}

// unlimited answers settings in the system service's place, which takes no part.
func unlimited(w http.ResponseWriter, _ *http.Request) {
	values := settings.Values{}
	for name, text := range limits.NonEmpty() {
		values[settings.FindSlug(name)] = text
	}
	_ = json.NewEncoder(w).Encode(values)
}

// serveSplitGateway is the gateway before services of other processes.
func serveSplitGateway(ctx context.Context, o order, say announce) error {
	id, err := mtls.Load(o.Member.Name, o.Member.Files)
	if err != nil {
		return err
	}
	client, err := cache.Open(secret.New(o.Member.Redis))
	if err != nil {
		return err
	}
	defer client.Close()
	upstreams, peers := map[string]http.Handler{}, id.NewPeers(map[string]http.Handler{settings.ServiceName: http.HandlerFunc(unlimited)})
	for name, address := range o.Member.Services {
		upstreams[name] = proxy.New(id, name, []string{address}, log)
		peers.SetInstances(name, []string{address})
	}
	entries, err := o.Member.entries(client)
	if err != nil {
		return err
	}
	g := gateway.New(gateway.Config{}, upstreams, peers, entries, client, nil, log)
	defer g.Close()
	return listen(ctx, g, ready{}, plainly, say)
}
