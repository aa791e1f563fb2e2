package startup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"

	"github.com/ironplane/ironplane/deploy/internal/backings"
	"github.com/ironplane/ironplane/pkg/secret"
)

// Installation is what its services start on.
type Installation struct {
	Config
	Listener         net.Listener             // to be served on
	Databases        map[string]secret.String // the URL of each service's schema
	MasterKey, Redis secret.String

	screen io.Writer
}

// Run takes the address, and starts what is not given of Postgres and Redis. Then it calls serve, whose context ends
// with ctx and when one of the two ends by itself.
func Run(ctx context.Context, c Config, screen io.Writer, serve func(context.Context, *Installation) error) (err error) {
	i := &Installation{Config: c, screen: screen}
	if i.Listener, err = listen(c.Listen); err != nil {
		return err
	}
	defer i.Listener.Close() // where nobody serves on it

	parts := &backings.Backings{}
	defer func() { err = errors.Join(err, parts.Stop(ctx)) }()
	if i.Databases, err = parts.Databases(ctx, c.Backings, screen); err != nil {
		return err
	}
	if i.MasterKey, err = parts.MasterKey(ctx, c.Backings); err != nil {
		return err
	}
	if i.Redis, err = parts.Redis(ctx, c.Backings, screen); err != nil {
		return err
	}

	serving, stop := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watched, ended := context.WithCancel(context.WithoutCancel(ctx)) // until all has drained
	watching.Go(func() { stop(parts.Ended(watched)) })
	err = serve(serving, i)
	if lost := context.Cause(serving); lost != nil && ctx.Err() == nil {
		err = lost // and what serve answers follows from it
	}
	stop(nil)
	ended()
	watching.Wait()
	return err
}

func listen(address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s is taken by another program; set IRONPLANE_LISTEN to another address, such as 127.0.0.1:8081", address)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return listener, nil
}
