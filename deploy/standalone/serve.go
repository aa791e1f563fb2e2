package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/process"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/identity"
)

// serve runs the product until ctx ends.
func serve(ctx context.Context, c config, screen io.Writer, log *slog.Logger) (err error) {
	listener, err := net.Listen("tcp", c.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s is taken by another program; set IRONPLANE_LISTEN to another address, such as 127.0.0.1:8081", c.Listen)
	}
	if err != nil {
		return fmt.Errorf("listen on %s: %w", c.Listen, err)
	}
	defer listener.Close() // where serving did not begin

	var operations net.Listener
	if c.Operations != "" {
		if operations, err = net.Listen("tcp", c.Operations); err != nil {
			return fmt.Errorf("listen for operations: %w", err)
		}
		defer operations.Close()
	}

	if err := os.MkdirAll(c.Data, 0o711); err != nil {
		return fmt.Errorf("make the data folder: %w", err)
	}
	parts := &backings{}
	defer func() { err = errors.Join(err, parts.stop(ctx)) }()
	database, err := parts.database(ctx, c)
	if err != nil {
		return err
	}
	client, err := parts.redis(ctx, c, screen)
	if err != nil {
		return err
	}
	p, err := product.Open(ctx, database, client, c.Config, log)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := welcome(ctx, c, p, "http://"+listener.Addr().String(), screen); err != nil {
		return err
	}

	serving, end := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { end(parts.ended(serving)) })
	if operations != nil {
		watching.Go(func() { end(process.Serve(serving, operations, metrics(p), log)) })
	}
	err = process.Serve(serving, listener, p.Gateway, log)
	end(err)
	watching.Wait()
	if ctx.Err() == nil {
		return context.Cause(serving)
	}
	return err
}

// metrics is what the operations' listener serves.
func metrics(p *product.Product) http.Handler {
	own := http.NewServeMux()
	own.Handle("GET /metrics", p.Gateway.Metrics())
	return own
}

// welcome makes the first admin, if there is none yet, and says where to go from here.
func welcome(ctx context.Context, c config, p *product.Product, url string, screen io.Writer) error {
	fmt.Fprintf(screen, "Ironplane is ready at %s (the API's documentation is at %s/-/docs).\n", url, url)
	var file *os.File
	if c.AdminKeyFile != "" {
		var err error
		if file, err = os.CreateTemp(filepath.Dir(c.AdminKeyFile), ".admin-key-"); err != nil { // before the key is made: it is shown once
			return fmt.Errorf("write the admin's key: %w", err)
		}
		defer os.Remove(file.Name())
		defer file.Close()
	}
	key, made, err := identity.FirstAdmin(ctx, p.Databases[identity.Name])
	if err != nil || !made {
		return err
	}
	if file == nil {
		fmt.Fprintf(screen, "\nThe first admin's key, which is shown this once:\n\n  %s\n\nTry it:\n\n  curl -H 'Authorization: Bearer %s' %s/auth/key/current\n\n",
			key.Reveal(), key.Reveal(), url)
		return nil
	}
	if err := writeKey(file, key, c.AdminKeyFile); err != nil {
		return fmt.Errorf("write the admin's key: %w", err)
	}
	fmt.Fprintf(screen, "The first admin's key is in %s.\n", c.AdminKeyFile)
	return nil
}

// writeKey fills the file, which only its owner may read, and puts it in its place.
func writeKey(file *os.File, key secret.String, place string) error {
	if _, err := file.WriteString(key.Reveal() + "\n"); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	return os.Rename(file.Name(), place)
}
