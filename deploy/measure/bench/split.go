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

// memberConfig is the configuration of a server that is one of several processes.
type memberConfig struct {
	Name     string
	Files    mtls.Files
	Redis    string
	Key      string            // the process key
	Services map[string]string // for the gateway: the services' addresses by service
}

// splitServices are the running services: network serves the reads, and identity knows the API key.
var splitServices = []string{network.Name, identity.Name}

// serveSplit adds the gateway and the services as processes that talk over mTLS. The database must have an admin.
func (l *suite) serveSplit(ctx context.Context) (err error) {
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
		r, err := l.serveMember(ctx, authority, "split-service", memberConfig{Name: name, Key: keys[name].Text().Reveal()})
		if err != nil {
			return err
		}
		services[name] = r.Address
	}
	front, err := l.serveMember(
		ctx,
		authority,
		"split-gateway",
		memberConfig{Name: principal.Gateway, Key: keys[principal.Gateway].Text().Reveal(), Services: services},
	)
	if err != nil {
		return err
	}
	if front.Key, err = l.database.newKey(ctx); err != nil {
		return err
	}
	l.add(splitName, front)
	return nil
}

// serveMember starts one process with a certificate of its own.
func (l *suite) serveMember(ctx context.Context, authority *mtls.Authority, kind string, m memberConfig) (endpoint, error) {
	files, err := l.writeIdentity(authority, m.Name)
	if err != nil {
		return endpoint{}, err
	}
	m.Files, m.Redis = files, l.redis.URL()
	r, server, err := startServer(ctx, kind, serverConfig{Databases: l.database.urls, Profile: l.profile("split-" + m.Name), Member: m})
	if err != nil {
		return endpoint{}, fmt.Errorf("start the process of the %s: %w", m.Name, err)
	}
	l.servers = append(l.servers, server)
	return r, nil
}

// writeIdentity writes a process' certificate, key and authority to files.
func (l *suite) writeIdentity(authority *mtls.Authority, name string) (mtls.Files, error) {
	issued, err := authority.Issue(name)
	if err != nil {
		return mtls.Files{}, err
	}
	path := func(suffix string) string { return filepath.Join(l.folder, name+suffix) }
	files := mtls.Files{Certificate: path(".crt"), Key: path(".key"), CA: path(".ca")}
	for file, content := range map[string][]byte{
		files.Certificate: issued.Certificate, files.Key: []byte(issued.Key.Reveal()), files.CA: authority.Certificate(),
	} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return mtls.Files{}, fmt.Errorf("write the identity of %s: %w", name, err)
		}
	}
	return files, nil
}

// newKey creates an API key for the first admin.
func (db *database) newKey(ctx context.Context) (string, error) {
	own, err := pool.Open(ctx, db.urls[identity.Name], 1, pool.Options{})
	if err != nil {
		return "", err
	}
	defer own.Close()
	key, _, err := admin.CreateKey(ctx, own.DB)
	return key.Reveal(), err
}

// serveSplitService runs one service behind a gateway in another process.
func serveSplitService(ctx context.Context, o serverConfig, announceReady announce) error {
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
	db, err := pool.Open(ctx, o.Databases[served.Name], poolSize, served.PoolOptions(service.Tuning{}))
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
	if err := announceReady(endpoint{Address: listener.Addr().String()}); err != nil {
		return fmt.Errorf("announce the endpoint: %w", err)
	}
	return process.Serve(ctx, id.Listener(listener), mtls.Receive(rest.NewHandler(o.Member.Name, db.DB, log, routes), log), log)
}

// entries returns the key cache with the signatures of this process.
func (m memberConfig) entries(client *cache.Client) (*keycache.Store, error) {
	key, err := seal.ParseProcessKey(secret.New(m.Key), m.Name)
	if err != nil {
		return nil, err
	}
	signer, err := key.Signer(keycache.Purpose)
	return keycache.NewStore(client, signer, log), err
}

// serveSettings serves limits in place of the system service, which does not run.
func serveSettings(w http.ResponseWriter, _ *http.Request) {
	values := settings.Values{}
	for name, text := range limits.NonEmpty() {
		values[settings.FindSlug(name)] = text
	}
	_ = json.NewEncoder(w).Encode(values)
}

// serveSplitGateway runs the gateway in front of services in other processes.
func serveSplitGateway(ctx context.Context, o serverConfig, announceReady announce) error {
	id, err := mtls.Load(o.Member.Name, o.Member.Files)
	if err != nil {
		return err
	}
	client, err := cache.Open(secret.New(o.Member.Redis))
	if err != nil {
		return err
	}
	defer client.Close()
	upstreams, peers := map[string]http.Handler{}, id.NewPeers(map[string]http.Handler{settings.ServiceName: http.HandlerFunc(serveSettings)})
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
	return listen(ctx, g, endpoint{}, plainListener, announceReady)
}
