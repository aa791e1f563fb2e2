package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/ironplane/ironplane/deploy/internal/backings"
	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/welcome"
	"github.com/ironplane/ironplane/pkg/pg"
	"github.com/ironplane/ironplane/pkg/principal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/identity"
)

// run runs the programs of a folder until ctx or one of them ends.
func run(ctx context.Context, c config, programs string, environment []string, screen io.Writer) (err error) {
	public, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s; IRONPLANE_LISTEN can name another address: %w", c.Listen, err)
	}
	defer public.Close() // the gateway listens there once the services are ready

	parts := &backings.Backings{}
	defer func() { err = errors.Join(err, parts.Stop(ctx)) }()
	databases, err := parts.Databases(ctx, c.Backings)
	if err != nil {
		return err
	}
	masterKey, err := parts.MasterKey(ctx, c.Backings)
	if err != nil {
		return err
	}
	redis, err := parts.Redis(ctx, c.Backings, screen)
	if err != nil {
		return err
	}
	folder := filepath.Join(c.Backings.Data, "run") // ours, since the database is
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("remove what an earlier run left: %w", err)
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	f, err := newFleet(folder, programs, environment, databases, masterKey, redis)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.stop(ctx)) }()
	if err := f.startServices(ctx); err != nil {
		return err
	}
	_ = public.Close()
	if err := f.startGateway(ctx, public.Addr().String()); err != nil {
		return err
	}
	if err := greet(ctx, c, databases[identity.Name], f.addresses[principal.Gateway], screen); err != nil {
		return err
	}

	watching, end := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { end(parts.Ended(watching)) })
	select {
	case err := <-f.ended:
		end(fmt.Errorf("the run is over: %w", err))
	case <-watching.Done():
	}
	watch.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(watching)
}

func greet(ctx context.Context, c config, url secret.String, address string, screen io.Writer) error {
	db, err := pg.Open(ctx, url.Reveal(), 1)
	if err != nil {
		return err
	}
	defer db.Close()
	return welcome.Print(ctx, screen, "http://"+address, db, c.AdminKeyFile)
}

// freeAddresses answers an address of this machine for each service, where nobody listened a moment ago.
func freeAddresses() (map[string]string, error) {
	addresses := map[string]string{}
	for _, name := range product.Names() {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close() // not before all are found
		addresses[name] = l.Addr().String()
	}
	return addresses, nil
}
