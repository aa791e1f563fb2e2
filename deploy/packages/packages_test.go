// Package packages has the files and tests of Ironplane's packages for Linux. make packages builds them, and
// make test-packages tests them.
package packages

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/auth/principal"
)

var folder = flag.String("packages", "", "the `folder` of the packages to test")

// TestUnits checks that systemd accepts the units, and that they restrict processes to what they need.
func TestUnits(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed; Debian's package systemd has it")
	}
	root := t.TempDir()
	write := func(to, content string, mode fs.FileMode) {
		t.Helper()
		to = filepath.Join(root, to)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, []byte(content), mode)); err != nil {
			t.Fatal(err)
		}
	}
	var services []string
	for _, file := range glob(t, "systemd/ironplane*") {
		write("usr/lib/systemd/system/"+filepath.Base(file), read(t, file), 0o644)
		services = append(services, strings.Replace(filepath.Base(file), "@.", "@network.", 1))
	}
	write("usr/lib/systemd/system/ironplane-.service.d/hardening.conf", read(t, "systemd/hardening.conf"), 0o644)
	for _, file := range glob(t, "etc/*.env") {
		write("etc/ironplane/"+filepath.Base(file), read(t, file), 0o644)
	}
	for _, program := range []string{"usr/bin/ironplaned", "usr/lib/ironplane/site-agent"} {
		write(program, "#!/bin/sh\n", 0o755)
	}
	write("bin/sh", "#!/bin/sh\n", 0o755)
	for _, target := range []string{"sysinit", "basic", "shutdown", "network-online", "multi-user"} { // systemd's own
		write("usr/lib/systemd/system/"+target+".target", "[Unit]\nDescription="+target+"\n", 0o644)
	}
	if len(services) != 5 {
		t.Fatalf("got the units %q, want 5", services)
	}
	verify := exec.CommandContext(t.Context(), "systemd-analyze", append([]string{"verify", "--man=no", "--root=" + root}, services...)...)
	if output, err := verify.CombinedOutput(); err != nil || len(output) > 0 {
		t.Errorf("got %v: %s, want no output", err, output)
	}
	for _, service := range services {
		if strings.HasSuffix(service, ".target") {
			continue
		}
		const maxExposure = "13" // systemd's exposure level in tenths, from 0 (safe) to 100
		security := exec.CommandContext(
			t.Context(),
			"systemd-analyze",
			"security",
			"--offline=true",
			"--no-pager",
			"--root="+root,
			"--threshold="+maxExposure,
			service,
		)
		if output, err := security.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", service, err, output)
		}
	}
}

// TestDebian installs, upgrades, removes and purges the package, and checks which files stay.
func TestDebian(t *testing.T) {
	if *folder == "" {
		t.Skip("the test needs built packages: run make test-packages")
	}
	packages := glob(t, filepath.Join(*folder, "*.deb"))
	if len(packages) != 1 || len(glob(t, filepath.Join(*folder, "*.rpm"))) != 1 {
		t.Fatalf("got %q in %s, want one .deb and one .rpm", packages, *folder)
	}
	if _, err := exec.LookPath("dpkg"); err != nil || os.Getuid() != 0 {
		t.Skip("installing packages needs root and dpkg, as on Debian")
	}
	root := t.TempDir()
	dpkg := func(arguments ...string) {
		t.Helper()
		// The package's scripts run without chroot. They find the root in DPKG_ROOT.
		cmd := exec.CommandContext(
			t.Context(),
			"dpkg",
			append([]string{"--root=" + root, "--force-script-chrootless", "--force-depends", "--force-confold"}, arguments...)...)
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("dpkg %q: %v\n%s", arguments, err, output)
		}
	}
	for _, folder := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	at := func(path string) string { return filepath.Join(root, path) }

	dpkg("--install", packages[0])
	for _, name := range append(product.Names(), principal.Gateway, "standalone", "setup", "license") {
		want := "ironplaned " + name + " "
		if got := output(t, at("usr/bin/ironplaned"), name, "version"); !strings.HasPrefix(got, want) {
			t.Errorf("got the version %q, want it to begin with %q", got, want)
		}
	}
	output(t, at("usr/bin/ironplane"), "--help")
	output(t, at("usr/lib/ironplane/site-agent"), "version")
	checkSize(t, at("usr"))
	if is, err := os.Stat(at("etc/ironplane/secrets/network")); err != nil || is.Mode().Perm() != 0o750 {
		t.Errorf("got %v, %v for the secrets of network, want the mode 0750", is, err)
	}
	for _, user := range []string{"ironplane:", "ironplane-gateway:", "ironplane-network:", "ironplane-site-agent:"} {
		if !strings.Contains("\n"+read(t, at("etc/passwd")), "\n"+user) {
			t.Errorf("got no user %s, want one", user)
		}
	}
	secret, settings, edited := at(
		"etc/ironplane/secrets/setup/master-key",
	), at(
		"etc/ironplane/network.env",
	), "IRONPLANE_LISTEN=10.0.0.5:8443\n"
	if err := errors.Join(os.WriteFile(settings, []byte(edited), 0o644), os.WriteFile(secret, []byte("key"), 0o600)); err != nil {
		t.Fatal(err)
	}
	dpkg("--install", packages[0]) // an upgrade, as dpkg sees it
	dpkg("--remove", "ironplane")
	if left := append(glob(t, at("usr/lib/ironplane/*")), glob(t, at("usr/bin/*"))...); len(left) > 0 {
		t.Errorf("removed: got %q, want nothing left", left)
	}
	if read(t, settings) != edited {
		t.Error("got other settings after the removal, want them kept")
	}
	dpkg("--install", packages[0])
	if read(t, settings) != edited {
		t.Error("got other settings after the reinstallation, want them kept")
	}
	dpkg("--purge", "ironplane")
	var left []string
	for _, top := range []string{"etc/ironplane", "usr", "bin", "lib"} {
		_ = filepath.WalkDir(at(top), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				left = append(left, path)
			}
			return nil
		})
	}
	if !slices.Equal(left, []string{secret}) {
		t.Errorf("purged: got %q, want %q", left, []string{secret})
	}
	if empty, err := os.ReadDir(at("etc/ironplane/secrets")); err != nil || len(empty) != 1 {
		t.Errorf("purged: got folders %v, %v, want one", empty, err)
	}
}

// checkSize checks and prints the size of the installed files.
func checkSize(t *testing.T, folder string) {
	t.Helper()
	const megabyte, maxMegabytes = 1_000_000, 120
	var size int64
	err := filepath.WalkDir(folder, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("installed: %d MB", size/megabyte)
	if size > maxMegabytes*megabyte {
		t.Errorf("got %d MB of installed files, want at most %d", size/megabyte, maxMegabytes)
	}
}

// TestRPM checks that the .rpm has the same files as the .deb.
func TestRPM(t *testing.T) {
	if *folder == "" {
		t.Skip("the test needs built packages: run make test-packages")
	}
	for _, tool := range []string{"rpm", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(tool + " is not installed; Debian's packages rpm and dpkg have rpm and dpkg-deb")
		}
	}
	rpm := output(t, "rpm", "-q", "--list", "--package", glob(t, filepath.Join(*folder, "*.rpm"))[0])
	for line := range strings.Lines(output(t, "dpkg-deb", "--contents", glob(t, filepath.Join(*folder, "*.deb"))[0])) {
		fields := strings.Fields(line) // mode, owner, size, day, time, path
		if path := strings.TrimPrefix(fields[5], "."); !strings.HasSuffix(path, "/") && !strings.Contains("\n"+rpm, "\n"+path+"\n") {
			t.Errorf("got an .rpm without %s, want it as in the .deb", path)
		}
	}
}

func output(t *testing.T, name string, arguments ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, arguments...).Output()
	if err != nil {
		t.Fatalf("%s: %s", name, describeExit(err))
	}
	return string(out)
}

// describeExit returns the text of a program's error, with the program's output on stderr.
func describeExit(err error) string {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return fmt.Sprintf("%v: %s", err, exit.Stderr)
	}
	return err.Error()
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return found
}
