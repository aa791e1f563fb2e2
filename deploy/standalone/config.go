package main

import (
	"fmt"
	"log/slog"
	"reflect"
	"strings"

	"github.com/ironplane/ironplane/pkg/secret"
)

// config is what the environment says. A member without a default is off where it is empty.
type config struct {
	Listen       string        `env:"IRONPLANE_LISTEN" default:"127.0.0.1:8080" doc:"the address to serve on"`
	Data         string        `env:"IRONPLANE_DATA" default:"./data" doc:"the folder of the data; it survives a restart"`
	AdminKeyFile string        `env:"IRONPLANE_ADMIN_KEY_FILE" doc:"where the first admin's key goes (mode 0600), instead of to the screen"`
	DatabaseURL  secret.String `env:"DATABASE_URL" doc:"a Postgres to use, as a role that may create roles, instead of an own one: postgres://…"`
	RedisURL     secret.String `env:"REDIS_URL" doc:"a Redis to use instead of an own one: redis://…"`
	LogLevel     slog.Level    `env:"IRONPLANE_LOG_LEVEL" default:"WARN" doc:"DEBUG, INFO, WARN or ERROR"`
}

func configFrom(environment []string) (config, error) {
	given := map[string]string{}
	for _, entry := range environment {
		name, value, _ := strings.Cut(entry, "=")
		given[name] = value
	}
	var c config
	v := reflect.ValueOf(&c).Elem()
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		text := given[tag.Get("env")]
		if text == "" {
			text = tag.Get("default")
		}
		switch member := v.Field(i).Addr().Interface().(type) {
		case *string:
			*member = text
		case *secret.String:
			*member = secret.New(text)
		case *slog.Level:
			if err := member.UnmarshalText([]byte(text)); err != nil {
				return c, fmt.Errorf("%s is %q; it can be DEBUG, INFO, WARN or ERROR", tag.Get("env"), text)
			}
		}
	}
	return c, nil
}

func configHelp() string {
	var b strings.Builder
	for field := range reflect.TypeFor[config]().Fields() {
		fmt.Fprintf(&b, "  %-25s %s", field.Tag.Get("env"), field.Tag.Get("doc"))
		if value := field.Tag.Get("default"); value != "" {
			fmt.Fprintf(&b, " (default: %s)", value)
		}
		b.WriteString("\n")
	}
	return b.String()
}
