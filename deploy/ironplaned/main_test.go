package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
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
	for _, command := range []string{"backup FILE", "restore FILE", "maintenance-on", "maintenance-off", "maintenance-status"} {
		if !strings.Contains(help, command) {
			t.Errorf("got a help without %s, want it listed:\n%s", command, help)
		}
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
	// A command of the installation reaches the program of that installation.
	var out bytes.Buffer
	environment := []string{"IRONPLANE_DATA=" + t.TempDir()}
	err = run(t.Context(), []string{"maintenance-status"}, environment, &out)
	if err == nil || !strings.Contains(err.Error(), "holds no installation") {
		t.Errorf("maintenance-status: got %v, want an error about the empty folder", err)
	}
	// A program reads its configuration as it does alone.
	if _, err := ironplaned("network", "migrate"); err == nil || !strings.Contains(err.Error(), "DATABASE_URL is not set") {
		t.Errorf("network migrate: got %v, want an error about DATABASE_URL", err)
	}
}

// TestBackupFindsInstallation checks which program backs up the installation of a machine, and with which settings.
func TestBackupFindsInstallation(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := layout{filepath.Join(root, "etc"), filepath.Join(root, "etc/secrets"), filepath.Join(root, "var")}
	complete := func(environment ...string) ([]string, []string, error) {
		return l.complete([]string{"backup", "f"}, environment)
	}
	if _, _, err := complete(); err == nil || !strings.Contains(err.Error(), "IRONPLANE_DATA") {
		t.Errorf("no installation: got %v, want an error that names the variables", err)
	}
	write("etc/standalone.env", "# DATABASE_URL=x\nIRONPLANE_LISTEN=1\nDATABASE_URL=\"of the file\"\n")
	write("var/master-key", "")
	arguments, environment, err := complete("IRONPLANE_LISTEN=2")
	if err != nil || !slices.Equal(arguments, []string{"standalone", "backup", "f"}) {
		t.Errorf("one process: got %q and %v, want standalone", arguments, err)
	}
	for name, want := range map[string]string{
		"IRONPLANE_DATA": l.data, "IRONPLANE_LISTEN": "2", "DATABASE_URL": "of the file", "IRONPLANE_BACKUP_SETTINGS": l.settings,
	} {
		if got := valueOf(environment, name); got != want {
			t.Errorf("one process: got %s=%q, want %q", name, got, want)
		}
	}
	write("etc/secrets/setup/master-key", "")
	write("etc/pxe.env", "IRONPLANE_STORE=/store\n")
	if _, _, err := complete(); err == nil || !strings.Contains(err.Error(), "IRONPLANE_SECRETS") {
		t.Errorf("two installations: got %v, want an error that names the variables", err)
	}
	arguments, environment, err = complete("IRONPLANE_SECRETS=" + l.secrets)
	if err != nil || !slices.Equal(arguments, []string{"setup", "backup", "f"}) || valueOf(environment, "IRONPLANE_STORE") != "/store" {
		t.Errorf("several processes: got %q, %q and %v, want setup with the store", arguments, environment, err)
	}
	arguments, environment, err = complete("IRONPLANE_DATA=/elsewhere")
	if err != nil || arguments[0] != "standalone" || valueOf(environment, "IRONPLANE_BACKUP_SETTINGS") != "" {
		t.Errorf("an installation elsewhere: got %q, %q and %v, want none of the package's settings", arguments, environment, err)
	}
}
