package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/devservers"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/syncbuf"
)

const installDocument = "../../docs/operate/install.md"

// TestInstall installs and starts six processes with the commands of docs/operate/install.md. It then tests that
// the units of the packages give each process all its settings.
func TestInstall(t *testing.T) {
	t.Parallel()
	requireProc(t)
	redis, err := exec.LookPath("redis-server")
	if err != nil || runtime.GOOS != "linux" {
		t.Skip("the commands need Linux and redis-server; Debian's package redis-server has it")
	}
	if _, err := exec.LookPath("psql"); err != nil {
		t.Skip("psql is not installed; Debian's package postgresql-client has it")
	}
	postgres, err := devservers.StartPostgres(t.Context(), devservers.PostgresOptions{Dir: filepath.Join(t.TempDir(), "postgres")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := postgres.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	superuser, err := url.Parse(postgres.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	password, _ := superuser.User.Password()
	host := fmt.Sprintf(
		"127.%d.%d.%d",
		1+rand.IntN(200),
		rand.IntN(200),
		1+rand.IntN(200),
	) // an address at which the document's ports are free
	i := &installed{T: t, folder: t.TempDir(), environment: []string{
		"PATH=" + os.Getenv("PATH"),
		"HOST=" + host,
		"IRONPLANE_POSTGRES=" + superuser.Host,
		"IRONPLANE_REDIS=" + host + ":6379",
		"PSQL=psql -X",
		"PGHOST=" + superuser.Hostname(),
		"PGPORT=" + superuser.Port(),
		"PGUSER=" + superuser.User.Username(),
		"PGPASSWORD=" + password,
	}}
	if err := os.Symlink(programs, filepath.Join(i.folder, "bin")); err != nil {
		t.Fatal(err)
	}
	if output := i.run("settings", "secrets", "certificates", "database"); output != "" {
		t.Errorf("got the output %s, want none", output)
	}
	i.start(
		exec.Command(
			redis,
			"--port",
			"6379",
			"--bind",
			host,
			"--save",
			"",
			"--dir",
			i.folder,
			"--aclfile",
			filepath.Join(i.folder, "secrets/redis/users.acl"),
		),
	)
	i.start(i.shell("wait", "settings", "start"))
	ready := func() bool {
		response, err := http.Get("http://" + host + ":9080/readyz")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return err == nil && strings.Contains(string(body), `"status":"ready"`)
	}
	testkit.Eventually(t, "the gateway is ready", ready, func() string { return i.screen.String() })
	gateway := testkit.ClientAt(t, "http://"+host+":8080").WithKey(strings.TrimSpace(i.run("settings", "key")))
	gateway.Do(http.MethodPost, "/group", `{"name": "Berlin"}`).Want(http.StatusOK)
	gateway.Do(http.MethodGet, "/admin", nil).Want(http.StatusOK)

	i.wantPrivateSecrets()
	for _, name := range append(product.Names(), principal.Gateway) {
		i.wantCompleteUnit(name, host)
	}
	i.run("settings", "secrets", "certificates") // the commands can be repeated
	if out, err := i.shell("bin/setup bootstrap", "settings").CombinedOutput(); err != nil {
		t.Errorf("bootstrap again: got %v and %s, want success", err, out)
	}
}

// installed is an installation in a folder, made by the commands of the document.
type installed struct {
	*testing.T
	folder      string
	environment []string
	screen      syncbuf.Buffer
}

// shell returns a command that runs the named blocks of the document, and last at the end.
func (i *installed) shell(last string, blocks ...string) *exec.Cmd {
	i.Helper()
	var script strings.Builder
	for _, name := range blocks {
		script.WriteString(testkit.CodeBlock(i, installDocument, "split "+name) + "\n")
	}
	cmd := exec.Command("sh", "-e", "-c", script.String()+last)
	cmd.Dir, cmd.Env = i.folder, i.environment
	return cmd
}

func (i *installed) run(blocks ...string) string {
	i.Helper()
	output, err := i.shell("", blocks...).CombinedOutput()
	if err != nil {
		i.Fatalf("%v: %v\n%s", blocks, err, output)
	}
	return string(output)
}

// start starts a command. The end of the test also ends the processes that the command starts.
func (i *installed) start(cmd *exec.Cmd) {
	i.Helper()
	cmd.Stdout, cmd.Stderr = &i.screen, &i.screen
	cmd.SysProcAttr, cmd.WaitDelay = &syscall.SysProcAttr{Setpgid: true}, exitTimeout
	if err := cmd.Start(); err != nil {
		i.Fatal(err)
	}
	i.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		_ = cmd.Wait()
	})
}

// wantPrivateSecrets tests that other users cannot read the folders of secrets.
func (i *installed) wantPrivateSecrets() {
	i.Helper()
	for _, folder := range []string{"", "setup", "network"} {
		is, err := os.Stat(filepath.Join(i.folder, "secrets", folder))
		if err != nil {
			i.Fatal(err)
		}
		if is.Mode().Perm()&0o077 != 0 {
			i.Errorf("the secrets in %q: got the mode %s, want no access for others", folder, is.Mode())
		}
	}
}

var assigned = regexp.MustCompile(`(?m)^(?:Environment=)?([A-Z_]+=.*)$`)

// wantCompleteUnit runs --check with the variables of a unit and of the files of settings that the packages
// install.
func (i *installed) wantCompleteUnit(name, host string) {
	i.Helper()
	const packages = "../packages/"
	unit := packages + "systemd/ironplane-service@.service"
	if name == principal.Gateway {
		unit = packages + "systemd/ironplane-gateway.service"
	}
	var environment []string
	secrets := filepath.Join(i.folder, "secrets")
	for _, file := range []string{unit, packages + "etc/ironplane.env", packages + "etc/" + name + ".env"} {
		text, err := os.ReadFile(file)
		if err != nil {
			i.Fatal(err)
		}
		for _, found := range assigned.FindAllStringSubmatch(string(text), -1) {
			environment = append(environment, strings.NewReplacer(
				"%i", name, "%d", filepath.Join(secrets, name), "/etc/ironplane/secrets", secrets, "127.0.0.1", host).Replace(found[1]))
		}
	}
	if len(environment) < 10 {
		i.Fatalf("%s: got the settings %q, want at least 10", name, environment)
	}
	cmd := exec.Command(filepath.Join(programs, name), "--check")
	cmd.Env = environment
	out, err := cmd.CombinedOutput()
	var failures []string
	for line := range strings.Lines(string(out)) { // the process runs already, so its addresses are in use
		isFine := strings.HasPrefix(line, "ok ") || strings.HasPrefix(line, "skipped ") || strings.HasPrefix(line, "ironplane: ")
		if !isFine && !strings.Contains(line, "the address is in use") {
			failures = append(failures, line)
		}
	}
	if len(failures) > 0 || strings.Count(string(out), "the address is in use") != 2 { // the public address and the one for operations
		i.Errorf("%s --check: got %v and\n%s\nwant nothing wrong except that both addresses are taken", name, err, out)
	}
}
