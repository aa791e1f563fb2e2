package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime/pprof"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/ports"
	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/gateway"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/devservers"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/runtime/process"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/admin"
	"github.com/ironplane/ironplane/services/network"
)

// announce reports the endpoint of a server that is ready.
type announce func(endpoint) error

var log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))

// serve is the hidden command that runs one server until ctx or stdin ends.
func serve(ctx context.Context, kind string, stdin io.Reader, stdout io.Writer) (err error) {
	kinds := map[string]func(context.Context, serverConfig, announce) error{
		"service": serveService, "gateway": serveGateway, "split-service": serveSplitService, "split-gateway": serveSplitGateway,
	}
	run, ok := kinds[kind]
	if !ok {
		return fmt.Errorf("unknown server %q", kind)
	}
	var o serverConfig
	if err := json.NewDecoder(stdin).Decode(&o); err != nil {
		return fmt.Errorf("read the server's configuration: %w", err)
	}
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	go func() { // stdin ends with bench
		_, _ = io.Copy(io.Discard, stdin)
		leave()
	}()
	if o.Profile != "" {
		file, err := os.Create(o.Profile)
		if err != nil {
			return fmt.Errorf("write the profile: %w", err)
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return fmt.Errorf("write the profile: %w", err)
		}
		defer pprof.StopCPUProfile()
	}
	return run(ctx, o, func(r endpoint) error { return json.NewEncoder(stdout).Encode(r) })
}

// poolSize is the number of connections of each service's pool in the product.
const poolSize = 8

// serveService runs the network service's handler without a gateway. Every caller is an admin.
func serveService(ctx context.Context, o serverConfig, announceReady announce) error {
	db, err := pool.Open(ctx, o.Databases[network.Name], poolSize, network.Definition.PoolOptions(service.Tuning{}))
	if err != nil {
		return err
	}
	defer db.Close()
	handler := rest.NewHandler(network.Name, db.DB, log, network.New(db.DB, nil, nil).Routes())
	admin := &principal.Principal{KeyID: 1, Owner: principal.Owner{Type: principal.Admin, ID: 1}, Name: "bench", Grants: principal.All}
	return listen(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call := &principal.Call{Peer: principal.Gateway, Principal: admin, IP: netip.IPv6Loopback(), RequestID: "bench"}
		handler.ServeHTTP(w, r.WithContext(principal.NewContext(r.Context(), call)))
	}), endpoint{}, plainListener, announceReady)
}

// limits are counted as in production, but too high to be reached.
var limits = settings.Variables{
	OwnerRate:          "1000000",
	OwnerBurst:         "1000000",
	AddressRate:        "1000000",
	AddressBurst:       "1000000",
	OwnerConcurrency:   "1000000",
	AddressConcurrency: "1000000",
}

// serveGateway runs the whole product in one process, with a Redis and an API key, as standalone does.
func serveGateway(ctx context.Context, o serverConfig, announceReady announce) (err error) {
	server, err := devservers.StartRedis(ctx, devservers.RedisOptions{})
	if err != nil {
		return err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, server.Stop(stopping))
	}()
	if server.IsEmbedded() {
		fmt.Fprintln(os.Stderr, "redis-server is not on PATH: the gateway emulates it in its process")
	}
	client, err := cache.Open(secret.New(server.URL()))
	if err != nil {
		return err
	}
	defer client.Close()

	databases := map[string]secret.String{}
	for name, url := range o.Databases {
		databases[name] = secret.New(url)
	}
	free, err := ports.Free(1)
	if err != nil {
		return err
	}
	config := gateway.Config{TLSListen: free[0], TLSCertificate: o.Member.Files.Certificate, TLSKey: o.Member.Files.Key}
	p, err := product.Open(ctx, databases, seal.NewMasterKey(), service.Settings{}, limits, client, config, log)
	if err != nil {
		return err
	}
	defer p.Close()
	key, _, err := admin.CreateFirst(ctx, p.Databases[identity.Name]) // the database is new, so this creates an admin and a key
	if err != nil {
		return err
	}
	return listen(ctx, p.Gateway, endpoint{TLS: config.TLSListen, Key: key.Reveal()}, p.Gateway.AddTLSListener, announceReady)
}

// plainListener returns the listener itself, for plain HTTP.
func plainListener(l net.Listener) (net.Listener, error) { return l, nil }

// listen serves until ctx ends.
func listen(
	ctx context.Context,
	handler http.Handler,
	at endpoint,
	wrapListener func(net.Listener) (net.Listener, error),
	announceReady announce,
) error {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if listener, err = wrapListener(listener); err != nil {
		return err
	}
	defer listener.Close() // if serving did not begin
	at.Address = listener.Addr().String()
	if err := announceReady(at); err != nil {
		return fmt.Errorf("announce the endpoint: %w", err)
	}
	return process.Serve(ctx, listener, handler, log)
}
