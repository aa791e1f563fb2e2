package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/secret"
)

type settings struct {
	Listen   string         `env:"LISTEN" default:"127.0.0.1:1" doc:"where"`
	URL      secret.String  `env:"URL" required:"serve,migrate" doc:"of what"`
	Rate     int            `env:"RATE" default:"7"`
	On       bool           `env:"ON" default:"false"`
	Networks []netip.Prefix `env:"NETWORKS"`
	Level    slog.Level     `env:"LEVEL" default:"WARN"`
	embedded
}

type embedded struct {
	Name string `env:"NAME" required:"serve"`
}

func TestConfigure(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(file, []byte("hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var c settings
	environment := []string{
		"URL_FILE=" + file,
		"NAME=a=b",
		"NAME_FILE=/nowhere",
		"RATE=9",
		"ON=true",
		"NETWORKS= 10.0.0.1/8,::1 ",
		"LEVEL=debug",
		"LISTEN=",
	}
	if err := configure(&c, environment, "serve"); err != nil {
		t.Fatal(err)
	}
	want := settings{
		"127.0.0.1:1",
		secret.New("hunter2"),
		9,
		true,
		[]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")},
		slog.LevelDebug,
		embedded{"a=b"},
	}
	if fmt.Sprint(c) != fmt.Sprint(want) || !c.URL.Equal(want.URL) {
		t.Errorf("got %+v, want %+v", c, want)
	}
	if err := configure(&c, []string{"URL=x", "URL_FILE=/nowhere"}, "migrate"); err != nil || c.URL.Reveal() != "x" {
		t.Errorf("got the URL %q, %v, want x", c.URL.Reveal(), err)
	}
	for variables, says := range map[string]string{
		"": "NAME is not set", "NAME=x URL=": "URL is not set: of what", "NAME=x URL_FILE=/nowhere URL=": "URL_FILE: open /nowhere",
		"NAME=x RATE=many": `RATE is "many": it must be a number`, "NAME=x ON=perhaps": `ON is "perhaps"`, "NAME=x LEVEL=loud": `LEVEL is "loud"`, "NAME=x NETWORKS=home": `NETWORKS is "home"`,
	} {
		if err := errors.Join(
			configure(
				&c,
				append([]string{"URL=hunter2"}, strings.Fields(variables)...),
				"serve",
			)...); err == nil || !strings.Contains(err.Error(), says) ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: got %v, want an error that says %q without the URL", variables, err, says)
		}
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	var c settings
	var ran string
	note := func(name string) func(context.Context) error {
		return func(context.Context) error {
			ran = name + " " + c.Listen
			return nil
		}
	}
	p := Program{
		Name:   "thing",
		Config: &c,
		Commands: []Command{
			{Name: "serve", Summary: "serve it", Run: note("serve")},
			{Name: "migrate", Summary: "migrate it", Run: note("migrate")},
			{Name: "save", Summary: "save it", Argument: "FILE", RunWith: func(_ context.Context, file string) error {
				ran = "save " + file + " of " + c.Listen
				return nil
			}},
		},
	}
	var screen bytes.Buffer
	run := func(environment []string, arguments ...string) error {
		ran = ""
		screen.Reset()
		return p.Run(t.Context(), arguments, environment, &screen)
	}
	if err := run([]string{"URL=x", "NAME=y"}); err != nil || ran != "serve 127.0.0.1:1" {
		t.Errorf("got the run %q, %v, want serve 127.0.0.1:1", ran, err)
	}
	if err := run([]string{"URL=x", "LISTEN=here"}, "migrate"); err != nil || ran != "migrate here" {
		t.Errorf("got the run %q, %v, want migrate here", ran, err)
	}
	for _, help := range []string{"help", "-h", "--help"} {
		if err := run(nil, help); err != nil || ran != "" {
			t.Errorf("%s: got the run %q, %v, want none", help, ran, err)
		}
		for _, part := range []string{
			"Usage: thing", "serve it (the default)", "save FILE  save it", "where (default: 127.0.0.1:1)", "URL_FILE", "NAME",
		} {
			if !strings.Contains(screen.String(), part) {
				t.Errorf("%s: got\n%s\nwant a text that says %q", help, &screen, part)
			}
		}
	}
	for _, version := range []string{"version", "--version"} {
		if err := run(
			nil,
			version,
		); err != nil || ran != "" || !strings.HasPrefix(screen.String(), "thing ") ||
			!strings.Contains(screen.String(), runtime.Version()) {
			t.Errorf("%s: got the run %q, %v and %s, want thing and Go's version", version, ran, err, &screen)
		}
	}
	if err := run([]string{"URL=x", "LISTEN=here"}, "save", "f"); err != nil || ran != "save f of here" {
		t.Errorf("got the run %q, %v, want save f of here", ran, err)
	}
	for _, arguments := range [][]string{
		{"nonsense"}, {"serve", "fast"}, {""}, {"save"}, {"save", ""}, {"save", "f", "g"}, {"save", "--help"},
	} {
		if err := run([]string{"URL=x", "NAME=y"}, arguments...); err == nil || ran != "" {
			t.Errorf("%q: got the run %q, %v, want an error", arguments, ran, err)
		}
	}
}

// The help of a service has the variables that it reads, and none that are only for others.
func TestHelpOfAService(t *testing.T) {
	t.Parallel()
	var c struct {
		All    string `env:"FOR_ALL"`
		Shared string `env:"FOR_PXE" for:"pxe system"`
		Others string `env:"FOR_SYSTEM" for:"system"`
	}
	for service, want := range map[string][3]bool{"pxe": {true, true, false}, "network": {true, false, false}, "": {true, true, true}} {
		var screen bytes.Buffer
		p := Program{Name: "thing", Service: service, Config: &c, Commands: []Command{{Name: "serve"}}}
		if err := p.Run(t.Context(), []string{"--help"}, nil, &screen); err != nil {
			t.Fatal(err)
		}
		for n, name := range []string{"FOR_ALL", "FOR_PXE", "FOR_SYSTEM"} {
			if got := strings.Contains(screen.String(), name); got != want[n] {
				t.Errorf("the help of %q: got %s listed: %v, want %v", service, name, got, want[n])
			}
		}
	}
}
