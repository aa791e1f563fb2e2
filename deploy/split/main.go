// Command split runs Ironplane on one machine as it runs on many: the gateway and each service in a process of its
// own, which communicate over mTLS. It starts Postgres and Redis itself unless their URLs are set.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/startup"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/runtime/health"
)

func main() {
	startup.Program(
		"split",
		run,
		health.Check{Name: "the other programs are beside this one", Ask: func(context.Context) error { return checkPrograms() }},
	).Main()
}

// checkPrograms returns an error if a program is missing beside this one.
func checkPrograms() error {
	own, err := os.Executable()
	if err != nil {
		return err
	}
	var missing error
	for _, name := range append(product.Names(), principal.Gateway) {
		_, err := os.Stat(filepath.Join(filepath.Dir(own), name))
		missing = errors.Join(missing, err)
	}
	return missing
}

// run starts PostgreSQL and Redis, and serves with the programs beside this one.
func run(ctx context.Context, c startup.Config) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the path of this program: %w", err)
	}
	return startup.Run(ctx, c, os.Stdout, func(ctx context.Context, i *startup.Installation) error {
		return serve(ctx, i, filepath.Dir(program))
	})
}

// serve runs the programs of a folder until ctx or one of them ends.
func serve(ctx context.Context, i *startup.Installation, programs string) (err error) {
	folder := filepath.Join(i.Datastores.Data, "run") // no other process uses it while this one has the database
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("remove the files of an earlier run: %w", err)
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	f, err := newFleet(
		folder,
		programs,
		append(
			os.Environ(),
			"IRONPLANE_MAINTENANCE="+string(i.Gateway.Maintenance),
			"IRONPLANE_STORE="+i.Store,
			"IRONPLANE_API_URL="+i.APIURL,
			"IRONPLANE_PASSKEY_DOMAIN="+i.PasskeyDomain,
			"IRONPLANE_PASSKEY_ORIGINS="+i.PasskeyOrigins,
		),
		i.Databases,
		i.MasterKey,
		i.Redis,
	)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.stop(ctx)) }()
	if err := f.startServices(ctx); err != nil {
		return err
	}
	_ = i.Listener.Close() // the gateway listens there now that the services are ready
	if err := f.startGateway(ctx, i.Listener.Addr().String()); err != nil {
		return err
	}
	if err := i.Welcome(ctx, f.addresses[principal.Gateway]); err != nil {
		return err
	}
	select {
	case err := <-f.ended:
		return fmt.Errorf("the run is over: %w", err)
	case <-ctx.Done():
		return nil
	}
}
