// Command ironplane calls Ironplane's API from a shell. It uses the public API with an API key, as any other client does.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/ironplane/ironplane/deploy/cli/command"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second Ctrl-C ends it at once
	os.Exit(command.Run(ctx, os.Args[1:], command.System()))
}
