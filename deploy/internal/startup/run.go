package startup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"github.com/ironplane/ironplane/deploy/internal/datastores"
	"github.com/ironplane/ironplane/pkg/secret"
)

// Installation is what the services start with.
type Installation struct {
	Config
	Listener         net.Listener             // where the gateway serves
	Databases        map[string]secret.String // the URL of each service's schema
	MasterKey, Redis secret.String

	screen io.Writer
}

// Run listens, starts Postgres and Redis unless the configuration names others, and calls serve. The context of serve ends with
// ctx, or when one of these servers ends by itself.
func Run(ctx context.Context, c Config, screen io.Writer, serve func(context.Context, *Installation) error) (err error) {
	i := &Installation{Config: c, screen: screen}
	if i.Listener, err = listen(c.Listen); err != nil {
		return err
	}
	defer i.Listener.Close() // in case serve is never called
	i.setLocalhost(i.Listener.Addr())

	servers := &datastores.Servers{}
	defer func() { err = errors.Join(err, servers.Stop(ctx)) }()
	if i.Databases, err = servers.Databases(ctx, c.Datastores, screen); err != nil {
		return err
	}
	if i.MasterKey, err = servers.MasterKey(ctx, c.Datastores); err != nil {
		return err
	}
	if i.Redis, err = servers.Redis(ctx, c.Datastores, screen); err != nil {
		return err
	}

	serving, stop := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watched, ended := context.WithCancel(context.WithoutCancel(ctx)) // until serve has returned
	watching.Go(func() { stop(servers.Wait(watched)) })
	err = serve(serving, i)
	if lost := context.Cause(serving); lost != nil && ctx.Err() == nil {
		err = lost // the error of serve follows from it
	}
	stop(nil)
	ended()
	watching.Wait()
	return err
}

// setLocalhost gives an installation that only this machine can reach the name localhost, unless it has an address already. Browsers
// accept passkeys for that name without TLS, and for no IP address.
func (c *Config) setLocalhost(address net.Addr) {
	at, err := netip.ParseAddrPort(address.String())
	if c.APIURL != "" || err != nil || !at.Addr().IsLoopback() {
		return
	}
	c.APIURL = fmt.Sprintf("http://localhost:%d", at.Port())
	if c.PasskeyDomain == "" && c.PasskeyOrigins == "" {
		c.PasskeyDomain, c.PasskeyOrigins = "localhost", c.APIURL
	}
}

// listen returns a listener, or an error that says what to do if the address is in use.
func listen(address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s is used by another program; set IRONPLANE_LISTEN to another address, such as 127.0.0.1:8081", address)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return listener, nil
}
