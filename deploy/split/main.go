// Split runs Ironplane on one machine as it runs on many: the gateway and each service as a process of its own, which
// talk over mTLS. Postgres and Redis are its own where they are not given.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/ironplane/ironplane/deploy/internal/backings"
	"github.com/ironplane/ironplane/gateway"
	"github.com/ironplane/ironplane/pkg/process"
	"github.com/ironplane/ironplane/pkg/service"
)

// config is what the environment says. The last three are here to be checked and explained: they are for the processes.
type config struct {
	Listen                   string `env:"IRONPLANE_LISTEN" default:"127.0.0.1:8080" doc:"the address that the gateway serves on"`
	AdminKeyFile             string `env:"IRONPLANE_ADMIN_KEY_FILE" doc:"where the first admin's key goes (mode 0600), instead of to the screen"`
	Backings                 backings.Config
	LogLevel                 slog.Level `env:"IRONPLANE_LOG_LEVEL" default:"WARN" doc:"DEBUG, INFO (a line for each request), WARN or ERROR"`
	process.OperationsConfig            // the gateway's
	service.Settings
	Gateway gateway.Config
}

func main() {
	var c config
	process.Program{Name: "split", Config: &c, Commands: []process.Command{
		{Name: "run", Summary: "start and serve until SIGINT or SIGTERM", Run: func(ctx context.Context) error {
			program, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find the other programs: %w", err)
			}
			return run(ctx, c, filepath.Dir(program), os.Environ(), os.Stdout)
		}},
	}}.Main()
}
