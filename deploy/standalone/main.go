// Standalone runs all of Ironplane in one process: the gateway, the services and, where they are not given, a
// Postgres and a Redis of its own.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/ironplane/ironplane/pkg/process"
)

const usage = `Usage: standalone [command]

Commands:
  run        start and serve until SIGINT or SIGTERM (the default)
  admin-key  make another key for the first admin, and print it; also while another standalone runs
  help       print this

Environment:
`

func main() {
	process.Main(func(ctx context.Context) error {
		config, err := configFrom(os.Environ())
		if err != nil {
			return err
		}
		command := "run"
		if len(os.Args) > 1 {
			command = os.Args[1]
		}
		switch command {
		case "run":
			return serve(ctx, config, os.Stdout, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: config.LogLevel})))
		case "admin-key":
			return printAdminKey(ctx, config, os.Stdout)
		case "help", "-h", "--help":
			fmt.Print(usage + configHelp())
			return nil
		default:
			return fmt.Errorf("there is no command %q: run, admin-key or help", command)
		}
	})
}
