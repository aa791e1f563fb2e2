package command

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/siteagent/agenttest"
)

const (
	agentKey = "what the agent asks of its callers"
	// hostKey is the public key of no existing host.
	hostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHUFGSJFCT8IXStp9iotgQlFRILJ5FVUFVlM3Z2l4gNG"
)

// TestWait installs machines at a site, and waits for the end of each: one succeeds, one fails, one takes too long.
func TestWait(t *testing.T) {
	t.Parallel()
	_, admin := producttest.StartWith(t, testkit.Redis(t), service.Settings{AllowedNetworks: "127.0.0.1"})
	s := &shell{t: t, admin: admin, env: map[string]string{"IRONPLANE_URL": admin.URL, "IRONPLANE_KEY": admin.Key}}
	agent := agenttest.NewBootAgent(t, agentKey)
	host, port, _ := strings.Cut(strings.TrimPrefix(agent.URL, "http://"), ":")
	secret := "@" + file(t, agentKey)
	dhcp := s.id("dhcp-server", "create", "--name", "Berlin", "--http-host", host, "--http-port", port, "--http-api-key", secret)
	s.ok("group", "create", "Berlin", "--pxe-dhcp-server", "Berlin")
	files := s.id("file-server", "create", "--name", "files", "--install-max-concurrent", "20", "--group", "Berlin", "--http-host", host,
		"--http-port", port, "--http-api-key", secret, "--ssh-public-key", hostKey)
	s.ok("boot-script", "create", "--name", "boot", "--body", "@"+file(t, "#!ipxe\nkernel {{.URL.Files}}/linux token {{.URL.Preseed}}\n"))
	s.ok("preseed", "create", "--name", "seed", "--body", "{{quote .Password}}")
	s.ok("profile", "create", "--name", "mine", "--boot-script", "boot", "--preseed", "seed")
	testkit.AwaitAgents(t, admin, "/pxe/dhcp/"+dhcp, "/pxe/file/"+files)

	password := "@" + file(t, "a long walk in the rain")
	install := func(n int) []string {
		s.ok("entity", "create", fmt.Sprintf("10.1.0.%d", n), "--group", "Berlin", "--v4-subnet-mask", "255.255.255.0",
			"--v4-gateway", "10.1.0.254")
		return []string{
			"install", "create", "--profile", "mine", "--host-macs", mac(n), "--host-entity", fmt.Sprintf("10.1.0.%d", n),
			"--password", password, "--host-hostname", fmt.Sprintf("web%d", n),
		}
	}
	boot := func(id string, n int) string {
		var token string
		testkit.Eventually(t, "the machine gets its boot script", func() bool {
			var number int64
			_, err := fmt.Sscan(id, &number)
			script, ok := agent.TryBoot(number, mac(n), fmt.Sprintf("10.1.0.%d", n), "kernel")
			if ok {
				token = agenttest.Token(script)
			}
			return ok && err == nil
		})
		return token
	}

	// The command waits while the machine installs itself.
	waited := make(chan *result)
	one := install(2)
	go func() { waited <- s.run(append(one, "--wait", "--columns", "status,progress")...) }()
	id := ""
	testkit.Eventually(t, "the install exists", func() bool {
		id = strings.TrimSpace(s.ok("install", "list", "--jq", ".[].id"))
		return id != ""
	})
	token := boot(id, 2)
	agent.PostEvent(token, "progress", "10.1.0.2", "step=packages&progress=60")
	testkit.Eventually(t, "the step is known", func() bool { return s.ok("install", "get", id, "--jq", ".step") == "packages\n" })
	agent.PostEvent(token, "done", "10.1.0.2", "")
	r := <-waited
	if r.code != 0 || r.out != "status    installed\nprogress  100\n" || !strings.Contains(r.err, "install "+id+": installed") {
		t.Errorf("got exit code %d, %q and %q, want the final state, and the progress on standard error", r.code, r.out, r.err)
	}

	// One that fails, watched by its name.
	failing := s.id(install(3)...)
	agent.PostEvent(boot(failing, 3), "failed", "10.1.0.3", "message=no+disk")
	failed := s.run("install", "watch", "web3", "--columns", "status")
	failed.fails(13, "install "+failing+": failed")
	if failed.out != "status  failed\n" {
		t.Errorf("got %q, want the final state on standard output", failed.out)
	}

	// One that takes longer than the caller waits.
	s.run(append(install(4), "--wait", "--timeout", "1ms")...).fails(14, "has not ended within --timeout")
}

func mac(n int) string { return fmt.Sprintf("52:54:00:00:00:%02x", n) }
