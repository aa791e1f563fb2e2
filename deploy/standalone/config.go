package main

import (
	"log/slog"

	"github.com/ironplane/ironplane/deploy/internal/backings"
	"github.com/ironplane/ironplane/gateway"
	"github.com/ironplane/ironplane/pkg/events"
	"github.com/ironplane/ironplane/pkg/process"
	"github.com/ironplane/ironplane/pkg/service"
)

type config struct {
	Listen       string `env:"IRONPLANE_LISTEN" default:"127.0.0.1:8080" doc:"the address to serve on"`
	AdminKeyFile string `env:"IRONPLANE_ADMIN_KEY_FILE" doc:"where the first admin's key goes (mode 0600), instead of to the screen"`
	Backings     backings.Config
	LogLevel     slog.Level      `env:"IRONPLANE_LOG_LEVEL" default:"WARN" doc:"DEBUG, INFO (a line for each request), WARN or ERROR"`
	Skip         events.Position `env:"IRONPLANE_SKIP_CHANGE" required:"skip-change" doc:"the change of a service that others cannot apply: pxe:17"`
	service.Settings
	process.OperationsConfig
	Gateway gateway.Config
}
