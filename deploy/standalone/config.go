package main

import (
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"strconv"
	"strings"

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

	KeyRate        int            `env:"IRONPLANE_KEY_RATE" default:"100" doc:"requests a second that a key may make"`
	KeyBurst       int            `env:"IRONPLANE_KEY_BURST" default:"200" doc:"requests that a key may make at once"`
	AddressRate    int            `env:"IRONPLANE_ADDRESS_RATE" default:"10" doc:"requests a second without a valid key that an address (of IPv6: a /64) may make"`
	AddressBurst   int            `env:"IRONPLANE_ADDRESS_BURST" default:"20" doc:"the same, at once"`
	TrustedProxies []netip.Prefix `env:"IRONPLANE_TRUSTED_PROXIES" doc:"whose X-Forwarded-For and Forwarded count: addresses and CIDRs, with commas"`
	KeyInQuery     bool           `env:"IRONPLANE_KEY_IN_QUERY" default:"false" doc:"whether ?key= is looked at, which puts keys into the logs of others"`
	Operations     string         `env:"IRONPLANE_OPERATIONS_LISTEN" doc:"an address to serve /metrics on, which should not be public"`
}

func (c config) gateway() gateway.Config {
	return gateway.Config{
		KeyRate: c.KeyRate, KeyBurst: c.KeyBurst, AddressRate: c.AddressRate, AddressBurst: c.AddressBurst,
		TrustedProxies: c.TrustedProxies, KeyInQuery: c.KeyInQuery,
	}
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
		case *int:
			n, err := strconv.Atoi(text)
			if err != nil {
				return c, fmt.Errorf("%s is %q; it is a number", tag.Get("env"), text)
			}
			*member = n
		case *bool:
			yes, err := strconv.ParseBool(text)
			if err != nil {
				return c, fmt.Errorf("%s is %q; it can be true or false", tag.Get("env"), text)
			}
			*member = yes
		case *[]netip.Prefix:
			networks, err := parseNetworks(text)
			if err != nil {
				return c, fmt.Errorf("%s: %w", tag.Get("env"), err)
			}
			*member = networks
		case *slog.Level:
			if err := member.UnmarshalText([]byte(text)); err != nil {
				return c, fmt.Errorf("%s is %q; it can be DEBUG, INFO, WARN or ERROR", tag.Get("env"), text)
			}
		}
	}
	return c, nil
}

func parseNetworks(text string) ([]netip.Prefix, error) {
	var networks []netip.Prefix
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		if a, err := netip.ParseAddr(part); err == nil && a.Zone() == "" {
			networks = append(networks, netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
			continue
		}
		p, err := netip.ParsePrefix(part)
		if err != nil {
			return nil, fmt.Errorf("%q is neither an address nor a CIDR", part)
		}
		networks = append(networks, p.Masked())
	}
	return networks, nil
}

func configHelp() string {
	var b strings.Builder
	for field := range reflect.TypeFor[config]().Fields() {
		fmt.Fprintf(&b, "  %-27s %s", field.Tag.Get("env"), field.Tag.Get("doc"))
		if value := field.Tag.Get("default"); value != "" {
			fmt.Fprintf(&b, " (default: %s)", value)
		}
		b.WriteString("\n")
	}
	return b.String()
}
