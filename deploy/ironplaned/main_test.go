package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/auth/principal"
)

// TestPrograms checks that each program answers under its name, with that name in its help, and that the help lists it.
func TestPrograms(t *testing.T) {
	t.Parallel()
	ironplaned := func(arguments ...string) (string, error) {
		var out bytes.Buffer
		err := run(t.Context(), arguments, nil, &out)
		return out.String(), err
	}
	help, err := ironplaned("--help")
	if err != nil {
		t.Fatal(err)
	}
	names := append(product.Names(), principal.Gateway, "standalone", "setup", "license")
	for _, name := range names {
		if !strings.Contains(help, "\n  "+name+" ") {
			t.Errorf("got a help without %s, want it listed:\n%s", name, help)
		}
		if got, err := ironplaned(name, "help"); err != nil || !strings.HasPrefix(got, "Usage: ironplaned "+name+" [command]") {
			t.Errorf("%s help: got %v and %s, want its usage", name, err, got)
		}
		if _, err := ironplaned(name, "no-such-command"); err == nil || !strings.Contains(err.Error(), "see ironplaned "+name+" help") {
			t.Errorf("%s no-such-command: got %v, want an error that names the help", name, err)
		}
	}
	if got := len(subcommands()); got != len(names) {
		t.Errorf("got %d programs, want %d", got, len(names))
	}
	for _, arguments := range [][]string{nil, {"no-such-program"}, {""}} {
		if _, err := ironplaned(arguments...); err == nil || !strings.Contains(err.Error(), "see ironplaned help") {
			t.Errorf("%q: got %v, want an error that names the help", arguments, err)
		}
	}
	if got, err := ironplaned("version"); err != nil || !strings.HasPrefix(got, "ironplaned ") {
		t.Errorf("version: got %q and %v, want the version", got, err)
	}
	// A program reads its configuration as it does alone.
	if _, err := ironplaned("network", "migrate"); err == nil || !strings.Contains(err.Error(), "DATABASE_URL is not set") {
		t.Errorf("network migrate: got %v, want an error about DATABASE_URL", err)
	}
}
