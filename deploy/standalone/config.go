package main

import (
	"log/slog"

	"github.com/ironplane/ironplane/gateway"
	"github.com/ironplane/ironplane/pkg/secret"
)

// config is what the environment says. A member without a default is off where it is empty.
type config struct {
	Listen       string        `env:"IRONPLANE_LISTEN" default:"127.0.0.1:8080" doc:"the address to serve on"`
	Data         string        `env:"IRONPLANE_DATA" default:"./data" doc:"the folder of the data; it survives a restart"`
	AdminKeyFile string        `env:"IRONPLANE_ADMIN_KEY_FILE" doc:"where the first admin's key goes (mode 0600), instead of to the screen"`
	DatabaseURL  secret.String `env:"DATABASE_URL" doc:"a Postgres to use, as a role that may create roles, instead of an own one: postgres://…"`
	RedisURL     secret.String `env:"REDIS_URL" doc:"a Redis to use instead of an own one: redis://…"`
	LogLevel     slog.Level    `env:"IRONPLANE_LOG_LEVEL" default:"WARN" doc:"DEBUG, INFO (a line for each request), WARN or ERROR"`
	Operations   string        `env:"IRONPLANE_OPERATIONS_LISTEN" doc:"an address to serve /metrics on, which should not be public"`
	gateway.Config
}
