package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/ironplane/ironplane/deploy/internal/backings"
	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/welcome"
	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/process"
	"github.com/ironplane/ironplane/services/identity"
)

// serve runs the product until ctx ends.
func serve(ctx context.Context, c config, screen io.Writer, operations *process.Operations, log *slog.Logger) (err error) {
	listener, err := net.Listen("tcp", c.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s is taken by another program; set IRONPLANE_LISTEN to another address, such as 127.0.0.1:8081", c.Listen)
	}
	if err != nil {
		return fmt.Errorf("listen on %s: %w", c.Listen, err)
	}
	defer listener.Close() // where serving did not begin

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
	client, err := openRedis(ctx, parts, c, screen)
	if err != nil {
		return err
	}
	defer client.Close()
	p, err := product.Open(ctx, databases, masterKey, c.Settings, client, c.Gateway, log)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := welcome.Print(ctx, screen, "http://"+listener.Addr().String(), p.Databases[identity.Name], c.AdminKeyFile); err != nil {
		return err
	}

	serving, end := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { end(parts.Ended(serving)) })
	operations.Check(process.Redis(client))
	p.Show(operations)
	operations.Started()
	err = process.Serve(serving, listener, p.Gateway, log)
	end(err)
	watching.Wait()
	if ctx.Err() == nil {
		return context.Cause(serving)
	}
	return err
}

func openRedis(ctx context.Context, parts *backings.Backings, c config, screen io.Writer) (*redis.Client, error) {
	url, err := parts.Redis(ctx, c.Backings, screen)
	if err != nil {
		return nil, err
	}
	client, err := cache.Open(url)
	if err != nil {
		return nil, fmt.Errorf("REDIS_URL: %w", err)
	}
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to Redis: %w", err), client.Close())
	}
	return client, nil
}
