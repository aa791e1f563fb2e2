// Standalone runs all of Ironplane in one process: the gateway, the services and, where they are not given, a
// Postgres and a Redis of its own.
package main

import (
	"context"
	"os"

	"github.com/ironplane/ironplane/pkg/process"
)

func main() {
	var c config
	process.Program{Name: "standalone", Config: &c, Commands: []process.Command{
		{Name: "run", Summary: "start and serve until SIGINT or SIGTERM", Run: func(ctx context.Context) error {
			operations, log := process.NewOperations("standalone"), process.Log(c.LogLevel)
			return operations.While(ctx, c.OperationsConfig, log, func(ctx context.Context) error {
				return serve(ctx, c, os.Stdout, operations, log)
			})
		}},
		{Name: "admin-key", Summary: "make another key for the first admin, and print it; also while another standalone runs", Run: func(ctx context.Context) error {
			return printAdminKey(ctx, c, os.Stdout)
		}},
		{Name: "skip-change", Summary: "let services go on behind a change of another that they cannot apply; also while another standalone runs", Run: func(ctx context.Context) error {
			return skipChange(ctx, c)
		}},
		{Name: "verify", Summary: "tell whether the log is as it was written; also while another standalone runs", Run: func(ctx context.Context) error {
			return verifyLog(ctx, c, os.Stdout)
		}},
	}}.Main()
}
