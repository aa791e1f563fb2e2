package packages

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/auth/principal"
)

// system is the Dockerfile of the operating system that the package is installed on. It includes Consul if its image is
// available. Mounts are shared, so that units see what systemd mounts for them, such as credentials.
const (
	system = `FROM %s
RUN apt-get update && apt-get install -y --no-install-recommends systemd systemd-sysv dbus postgresql redis-server sudo curl && rm -rf /var/lib/apt/lists/*
%s
ENTRYPOINT ["sh", "-c", "mount --make-rshared / && exec /lib/systemd/systemd"]
`
	startTimeout = 5 * time.Minute
)

// TestSystemd runs the package's units under systemd: everything in one process, which systemd replaces when it hangs; each
// service in its own process, with addresses and with Consul; and the site agent. No process can read another one's secrets.
func TestSystemd(t *testing.T) {
	if *folder == "" {
		t.Skip("the test needs built packages: run make test-packages")
	}
	if err := exec.Command("docker", "info").Run(); err != nil {
		t.Skip("systemd runs in a container, and Docker is not running; Debian's package docker.io has it")
	}
	m := startMachine(t, glob(t, filepath.Join(*folder, "*.deb"))[0])
	t.Run("one process", m.standalone)
	t.Run("with addresses", func(t *testing.T) { m.split(t, "") })
	t.Run("with Consul", func(t *testing.T) {
		if !m.consul {
			t.Skip("the image of Consul is missing: run docker pull hashicorp/consul:1.21, or set IRONPLANE_CONSUL_IMAGE")
		}
		m.split(t, consulSettings)
	})
	t.Run("site agent", m.agent)
}

// machine is a container that runs systemd.
type machine struct {
	id     string
	consul bool
}

func startMachine(t *testing.T, deb string) *machine {
	t.Helper()
	image := func(variable, otherwise string) string {
		if name := os.Getenv(variable); name != "" {
			return name
		}
		return otherwise
	}
	m := &machine{}
	consul := image("IRONPLANE_CONSUL_IMAGE", "hashicorp/consul:1.21")
	copyConsul := ""
	if exec.Command("docker", "image", "inspect", consul).Run() == nil {
		m.consul, copyConsul = true, "COPY --from="+consul+" /bin/consul /usr/bin/consul"
	}
	build := exec.CommandContext(t.Context(), "docker", "build", "--quiet", "-")
	build.Stdin = strings.NewReader(fmt.Sprintf(system, image("IRONPLANE_DEBIAN_IMAGE", "debian:bookworm-slim"), copyConsul))
	built, err := build.Output()
	if err != nil {
		t.Fatalf("build an operating system: %s", describeExit(err))
	}
	m.id = strings.TrimSpace(
		output(
			t,
			"docker",
			"run",
			"--detach",
			"--cap-add",
			"ALL",
			"--cap-drop",
			"SYS_RESOURCE",
			"--security-opt",
			"seccomp=unconfined",
			"--security-opt",
			"apparmor=unconfined",
			"--cgroupns",
			"private",
			"--tmpfs",
			"/run",
			"--tmpfs",
			"/tmp",
			strings.TrimSpace(string(built)),
		),
	)
	t.Cleanup(func() {
		if output, err := exec.CommandContext(context.WithoutCancel(t.Context()), "docker", "rm", "--force", "--volumes", m.id).
			CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, output)
		}
	})
	output(t, "docker", "cp", deb, m.id+":/ironplane.deb")
	m.await(t, "systemctl is-system-running --wait | grep -E 'running|degraded'")
	m.run(t, "dpkg --install /ironplane.deb")
	return m
}

// run runs a shell script in the container, and returns its output.
func (m *machine) run(t *testing.T, script string) string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), "docker", "exec", m.id, "sh", "-e", "-c", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s\n%s", script, err, output, m.journal())
	}
	return strings.TrimSpace(string(output))
}

// await repeats a script until it succeeds.
func (m *machine) await(t *testing.T, script string) {
	t.Helper()
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(time.Second) {
		output, err := exec.CommandContext(t.Context(), "docker", "exec", m.id, "sh", "-c", script).CombinedOutput()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v\n%s\n%s", script, err, output, m.journal())
		}
	}
}

func (m *machine) journal() string {
	output, _ := exec.Command("docker", "exec", m.id, "journalctl", "--no-pager", "--lines", "60", "--priority", "warning").CombinedOutput()
	return string(output)
}

// checkAPI reads and writes through the API with the key in a file.
func (m *machine) checkAPI(t *testing.T, key string) {
	t.Helper()
	m.run(
		t,
		`curl --fail-with-body --silent http://127.0.0.1:8080/group -H "Authorization: Bearer $(cat `+key+`)" -H 'Content-Type: application/json' --data '{"name": "`+rand.Text()+`"}'`,
	)
	m.run(t, `curl --fail-with-body --silent http://127.0.0.1:8080/admin -H "Authorization: Bearer $(cat `+key+`)"`)
}

func (m *machine) standalone(t *testing.T) {
	const unit, key = "ironplane-standalone", "/var/lib/ironplane/admin-key"
	m.run(t, "systemctl enable --now "+unit)
	m.checkAPI(t, key)
	if journal := m.run(t, "journalctl --no-pager --unit "+unit); strings.Contains(journal, m.run(t, "cat "+key)) {
		t.Error("got the key in the journal, want it hidden")
	}
	m.run(t, "systemctl reload "+unit)
	m.checkAPI(t, key)
	before := m.run(t, "systemctl show --property MainPID "+unit)
	m.run(t, "kill -STOP "+strings.TrimPrefix(before, "MainPID="))
	m.await(t, `systemctl is-active `+unit+` && [ "$(systemctl show --property MainPID `+unit+`)" != "`+before+`" ]`)
	m.checkAPI(t, key)
	m.run(t, "systemctl disable --now "+unit)
	if left := m.run(t, "systemctl show --property Result --property ExecMainStatus "+unit); left != "Result=success\nExecMainStatus=0" {
		t.Errorf("got %s, want the result success and exit status 0", left)
	}
}

const consulSettings = `CONSUL_URL=http://127.0.0.1:8500
IRONPLANE_SERVICES=clients identity network pxe system
IRONPLANE_MESH_CERTIFICATE=
IRONPLANE_MESH_KEY=
IRONPLANE_MESH_CA=`

// split runs each service in a process of its own, by the steps of docs/operate/install.md for a package.
func (m *machine) split(t *testing.T, settings string) {
	const setup = "export IRONPLANE_SECRETS=/etc/ironplane/secrets IRONPLANE_POSTGRES=127.0.0.1:5432 IRONPLANE_REDIS=127.0.0.1:6379\n"
	if settings == "" {
		m.run(t, setup+"ironplaned setup secrets && ironplaned setup certificates")
	} else {
		m.run(t, "rm /etc/ironplane/secrets/*/mesh*")
		m.run(t, "cat >> /etc/ironplane/ironplane.env <<'END'\n"+settings+"\nEND")
		m.run(t, "systemd-run --unit consul consul agent -config-file /etc/ironplane/secrets/consul/consul.hcl -data-dir /var/lib/consul")
		m.await(t, "curl --fail --silent http://127.0.0.1:8500/v1/status/leader | grep 8300")
		m.run(t, setup+"export CONSUL_URL=http://127.0.0.1:8500\nironplaned setup bootstrap")
	}
	if settings == "" {
		m.run(t, setup+"cd / && ironplaned setup sql | sudo -u postgres psql --quiet --set ON_ERROR_STOP=1 && ironplaned setup bootstrap")
		m.run(
			t,
			"install -o redis -g redis -m 600 /etc/ironplane/secrets/redis/users.acl /etc/redis/users.acl && echo aclfile /etc/redis/users.acl "+
				">> /etc/redis/redis.conf && systemctl restart redis-server",
		)
	}
	m.run(t, "systemctl start ironplane.target")
	m.await(t, `curl --silent http://127.0.0.1:9080/readyz | grep '"status":"ready"'`)
	for _, name := range product.Names() {
		m.run(t, "systemctl is-active ironplane-service@"+name)
	}
	m.run(t, setup+"ironplaned setup admin-key > /root/key")
	m.checkAPI(t, "/root/key")
	m.run(t, "systemctl reload 'ironplane-service@*'")
	m.checkAPI(t, "/root/key")
	for _, name := range append(product.Names(), principal.Gateway) {
		for _, other := range []string{"setup", "redis", "system", "gateway"} {
			if other == name {
				continue
			}
			m.run(t, fmt.Sprintf("! sudo -u ironplane-%s ls /etc/ironplane/secrets/%s/", name, other))
		}
	}
	m.run(t, "systemctl stop 'ironplane-*'")
	if failed := m.run(t, "systemctl list-units --state failed --plain --no-legend 'ironplane*'"); failed != "" {
		t.Errorf("stopped: got the failed units %s, want none", failed)
	}
}

func (m *machine) agent(t *testing.T) {
	m.run(
		t,
		"(umask 027 && head -c 32 /dev/urandom | base64 > /etc/ironplane/secrets/site-agent/key) && chgrp ironplane-site-agent "+
			"/etc/ironplane/secrets/site-agent/key",
	)
	m.run(t, "systemctl enable --now ironplane-site-agent")
	m.run(
		t,
		`curl --fail-with-body --silent --insecure https://127.0.0.1:8443/v1/health -H "Authorization: Bearer $(cat /etc/ironplane/secrets/site-agent/key)"`,
	)
	m.run(t, "sudo -u ironplane-site-agent IRONPLANE_AGENT_FOLDER=/var/lib/ironplane-site-agent /usr/lib/ironplane/site-agent fingerprint")
	m.run(t, "systemctl disable --now ironplane-site-agent")
}
