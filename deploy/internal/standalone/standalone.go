// Package standalone is the program that runs all of Ironplane in one process: the gateway and the services. It starts its own
// PostgreSQL and Redis unless DATABASE_URL and REDIS_URL name existing ones.
package standalone

import (
	"context"
	"log/slog"
	"os"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/startup"
	"github.com/ironplane/ironplane/pkg/runtime/process"
)

// Program returns the program standalone.
func Program() process.Program { return startup.Program("standalone", run) }

func run(ctx context.Context, c startup.Config) error {
	operations := process.NewOperations("standalone")
	return operations.Run(ctx, c.OperationsConfig, c.LogConfig, func(ctx context.Context, log *slog.Logger) error {
		return startup.Run(ctx, c, os.Stdout, func(ctx context.Context, i *startup.Installation) error {
			return serve(ctx, i, operations, log)
		})
	})
}

// serve runs the product until ctx ends. Redis may be unavailable at the start.
func serve(ctx context.Context, i *startup.Installation, operations *process.Operations, log *slog.Logger) error {
	client, err := operations.OpenRedis(i.Redis)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Ping(ctx).Err(); err != nil {
		log.Warn("redis unavailable, so the gateway asks the services instead", "error", err)
	}
	p, err := product.Open(ctx, i.Databases, i.MasterKey, i.Settings, i.Variables, client, i.Gateway, log)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := i.Welcome(ctx, i.Listener.Addr().String()); err != nil {
		return err
	}
	listener, err := p.Gateway.AddTLSListener(i.Listener)
	if err != nil {
		return err
	}
	defer operations.OnHangup(p.Renew)()
	p.Show(operations)
	return operations.Serve(ctx, listener, p.Gateway, func() {})
}
