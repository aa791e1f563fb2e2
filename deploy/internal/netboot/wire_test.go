package netboot

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ironplane/ironplane/backing/child"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/testkit"
)

// with starts the agent anew, with settings in place of the usual ones.
func (s *site) with(settings ...string) {
	s.Helper()
	s.settings = settings
	s.killAgent()
}

// run starts a program in the site's network, which ends with the test.
func (s *site) run(program string, arguments ...string) {
	s.Helper()
	cmd := exec.Command("ip", append([]string{"netns", "exec", s.space, program}, arguments...)...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	running, err := child.Start(cmd, syscall.SIGTERM, syscall.SIGKILL)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = running.Stop(context.Background()) })
}

// needsTool skips a test where a program is missing.
func needsTool(t *testing.T, program, from string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skip("install this package: ", from)
	}
}

const (
	url6     = "http://[fd77::1]"
	address6 = "fd77::10"
)

// A machine that has no IPv4 boots by the firmware's IPv6, by TFTP and by HTTP.
func TestIPv6(t *testing.T) {
	t.Parallel()
	needs(t)
	needsTool(t, "radvd", "radvd")
	made := newImage(t)
	for i, firmware := range []string{"pxe6", "http6"} {
		t.Run(firmware, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			made.bring(t, s.folder)
			shell(t, s.folder, fmt.Sprintf("ip -n %s addr add fd77::1/64 dev br0 nodad", s.space))
			s.with("IRONPLANE_AGENT_DHCP_IPV6=fd77::1")
			conf := filepath.Join(s.folder, "radvd.conf")
			shell(t, s.folder, testkit.Block(t, "../../../docs/netboot.md", "netboot radvd"), "RADVD_CONFIG="+conf, "INTERFACE=br0", "PREFIX=fd77::/64")
			s.run("radvd", "--nodaemon", "--logmethod", "stderr", "--config", conf, "--pidfile", filepath.Join(s.folder, "radvd.pid"))
			mac := fmt.Sprintf("52:54:00:77:06:%02x", 16+i)
			script := fmt.Sprintf("#!ipxe\nkernel %[1]s/local/image/vmlinuz initrd=initrd console=ttyS0 quiet no_timer_check\ninitrd --name initrd %[1]s/local/image/initrd\nboot\n", url6)
			one := siteagent.Machine{ID: 7, Revision: 1, MACs: []string{mac}, Hostname: "web6.example.com", IPv6: &siteagent.Address{Prefix: address6 + "/64", Gateway: "fd77::1"},
				Boot: siteagent.BootInstall, Token: tokens, Files: siteagent.Files{Boot: script}}
			if err := s.client.PutMachine(t.Context(), one); err != nil {
				t.Fatal(err)
			}
			m := s.switchOn(mac, firmware)
			m.shows("SYSTEM: it runs from its disk", 1)
			s.wantStory(7, siteagent.Leased, siteagent.Booted)
		})
	}
}
