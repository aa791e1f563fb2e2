package netboot

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ironplane/ironplane/pkg/devservers/child"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// with starts the agent anew, with settings in place of the usual ones.
func (s *site) with(settings ...string) {
	s.Helper()
	s.settings = settings
	s.killAgent()
}

// runIn starts a program in a network, which ends with the test.
func (s *site) runIn(space, program string, arguments ...string) {
	s.Helper()
	cmd := exec.Command("ip", append([]string{"netns", "exec", space, program}, arguments...)...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	running, err := child.Start(cmd, syscall.SIGTERM, syscall.SIGKILL)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = running.Stop(context.Background()) })
}

// wantStory looks at what a machine has done, in its order, whatever else it did in between.
func (s *site) wantStory(id int64, want ...string) {
	s.Helper()
	var story []string
	for _, r := range s.reports() {
		if r.ID == id {
			story = append(story, r.Event)
		}
	}
	rest := story
	for _, what := range want {
		i := slices.Index(rest, what)
		if i < 0 {
			s.Errorf("got the story %v, want %v", story, want)
			return
		}
		rest = rest[i+1:]
	}
}

// fromMemory is a boot script of the image's system, from the agent at a URL.
func fromMemory(url string) string {
	return fmt.Sprintf(
		"#!ipxe\nkernel %[1]s/local/image/vmlinuz initrd=initrd console=ttyS0 quiet no_timer_check\ninitrd --name initrd "+
			"%[1]s/local/image/initrd\nboot\n",
		url,
	)
}

const (
	tokens   = "0123456789abcdefghijklmnop"
	url6     = "http://[fd77::1]"
	address6 = "fd77::10"
)

// A machine that has no IPv4 boots by the firmware's IPv6, by TFTP and by HTTP.
func TestIPv6(t *testing.T) {
	t.Parallel()
	needs(t, routerOfIPv6)
	made := newImage(t)
	for i, firmware := range []string{"pxe6", "http6"} {
		t.Run(firmware, func(t *testing.T) {
			t.Parallel()
			if i > 0 {
				wholeRun(t)
			}
			s := newSite(t)
			made.bring(t, s.folder)
			shell(t, s.folder, fmt.Sprintf("ip -n %s addr add fd77::1/64 dev br0 nodad", s.space))
			s.with("IRONPLANE_AGENT_DHCP_IPV6=fd77::1")
			conf := filepath.Join(s.folder, "radvd.conf")
			shell(
				t,
				s.folder,
				testkit.CodeBlock(t, "../../../docs/do/netboot.md", "netboot radvd"),
				"RADVD_CONFIG="+conf,
				"INTERFACE=br0",
				"PREFIX=fd77::/64",
			)
			s.runIn(s.space, "radvd", "--nodaemon", "--logmethod", "stderr", "--config", conf, "--pidfile", filepath.Join(s.folder, "radvd.pid"))
			mac := fmt.Sprintf("52:54:00:77:06:%02x", 16+i)
			one := siteagent.Machine{
				ID:       7,
				Revision: 1,
				MACs:     []string{mac},
				Hostname: "web6.example.com",
				IPv6:     &siteagent.Address{Prefix: address6 + "/64", Gateway: "fd77::1"},
				Boot:     siteagent.BootInstall,
				Token:    tokens,
				Files:    siteagent.Files{Boot: fromMemory(url6)},
			}
			if err := s.client.PutMachine(t.Context(), one); err != nil {
				t.Fatal(err)
			}
			m := s.switchOn(mac, firmware)
			m.shows("SYSTEM: it runs from its disk", 1)
			s.wantStory(7, siteagent.EventLeased, siteagent.EventBooted)
		})
	}
}

// udhcpcShows prints what a client is given.
const udhcpcShows = `#!/bin/sh
if [ "$1" = bound ]; then
  ip addr add "$ip/$mask" dev "$interface"
  ip route add default via "$router"
  echo "has $ip of $serverid, boots $boot_file"
fi
`

// Behind a relay agent that says the port, a machine has its address and its script at the port where it asked first, and who says that
// he has its MAC address has neither at another one.
func TestRelayAgent(t *testing.T) {
	t.Parallel()
	needs(t, relayAgent)
	const mac = "52:54:00:77:07:01"
	s := newSite(t)
	s.with("IRONPLANE_AGENT_DHCP_RELAYS=10.77.0.254")
	router := s.space + "r"
	clients := []string{s.space + "a", s.space + "b"}
	for _, name := range append(clients, router) {
		shell(t, "/", "ip netns add "+name)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	}
	shell(t, "/", fmt.Sprintf(`
ip -n %[1]s link add relay type veth peer name uplink netns %[2]s
ip -n %[1]s link set relay master br0 up
ip -n %[1]s route add 10.78.0.0/16 via 10.77.0.254
ip -n %[2]s addr add 10.77.0.254/24 dev uplink
ip -n %[2]s link set uplink up
ip -n %[2]s link set lo up
ip -n %[2]s route add default via 10.77.0.1
ip netns exec %[2]s sysctl -q -w net.ipv4.ip_forward=1
`, s.space, router))
	for i, client := range clients {
		shell(t, "/", fmt.Sprintf(`
ip -n %[1]s link add port%[3]d type veth peer name eth0 netns %[2]s
ip -n %[1]s addr add 10.78.%[3]d.1/24 dev port%[3]d
ip -n %[1]s link set port%[3]d up
ip -n %[2]s link set eth0 address %[4]s up
ip -n %[2]s link set lo up
`, router, client, i, mac))
	}
	s.runIn(router, "dhcrelay", "-4", "-d", "-a", "-m", "discard", "-id", "port0", "-id", "port1", "-iu", "uplink", "10.77.0.1")
	one := siteagent.Machine{
		ID:       7,
		Revision: 1,
		MACs:     []string{mac},
		IPv4:     &siteagent.Address{Prefix: "10.78.0.10/24", Gateway: "10.78.0.1"},
		Boot:     siteagent.BootInstall,
		Token:    tokens,
		Files:    siteagent.Files{Boot: "#!ipxe\n# of this machine\n"},
	}
	if err := s.client.PutMachine(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	show := filepath.Join(s.folder, "udhcpc")
	if err := os.WriteFile(show, []byte(udhcpcShows), 0o755); err != nil {
		t.Fatal(err)
	}
	asks := func(client string) string {
		return shell(
			t,
			s.folder,
			fmt.Sprintf(
				"ip netns exec %s busybox udhcpc -i eth0 -q -n -t 4 -T 3 -V PXEClient:Arch:00000:UNDI:002001 -O bootfile -s %s 2>&1 || true",
				client,
				show,
			),
		)
	}
	var said string
	s.await("the machine has its address", patience, func() bool { // as soon as the relay agent listens
		said = asks(clients[0])
		return strings.Contains(said, "has ")
	})
	if !strings.Contains(said, "has 10.78.0.10 of 10.77.0.1, boots local/boot/undionly.kpxe") {
		t.Errorf("got %s, want a lease of 10.78.0.10 that boots undionly.kpxe", said)
	}
	if said := asks(clients[1]); strings.Contains(said, "has ") {
		t.Errorf("got %s at another port, want no lease", said)
	}
	if got := shell(
		t,
		s.folder,
		"ip netns exec "+clients[0]+" busybox wget -q -O - http://10.77.0.1/i/boot",
	); !strings.Contains(
		got,
		"# of this machine",
	) {
		t.Errorf("got the script %s, want that of this machine", got)
	}
	s.wantStory(7, siteagent.EventLeased, siteagent.EventRefused, siteagent.EventBooted)
	var refused string
	for _, r := range s.reports() {
		if r.Event == siteagent.EventRefused {
			refused = r.Response
		}
	}
	if !strings.Contains(refused, "it asks from port port1") || !strings.Contains(refused, "at port port0") {
		t.Errorf("got the refusal %s, want one that names port1 and port0", refused)
	}
}

// Beside a DHCP server that the site has, which gives addresses and names no file, a machine boots by what the agent says.
func TestBesideAnotherServer(t *testing.T) {
	t.Parallel()
	needs(t, dhcpServer)
	made := newImage(t)
	for i, firmware := range []string{"bios", "uefi"} {
		t.Run(firmware, func(t *testing.T) {
			t.Parallel()
			if i > 0 {
				wholeRun(t)
			}
			s := newSite(t)
			made.bring(t, s.folder)
			s.with("IRONPLANE_AGENT_DHCP=proxy", "IRONPLANE_AGENT_DHCP_POOL=")
			other := s.space + "d"
			shell(t, "/", fmt.Sprintf(`
ip netns add %[2]s
ip -n %[1]s link add dhcp type veth peer name eth0 netns %[2]s
ip -n %[1]s link set dhcp master br0 up
ip -n %[2]s addr add 10.77.0.2/24 dev eth0
ip -n %[2]s link set eth0 up
ip -n %[2]s link set lo up
`, s.space, other))
			t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", other).Run() })
			s.runIn(
				other,
				"dnsmasq",
				"--keep-in-foreground",
				"--port=0",
				"--conf-file=/dev/null",
				"--pid-file",
				"--user=root",
				"--interface=eth0",
				"--bind-interfaces",
				"--no-ping",
				"--dhcp-authoritative",
				"--dhcp-range=10.77.0.100,10.77.0.150,255.255.255.0",
				"--dhcp-leasefile="+filepath.Join(s.folder, "leases"),
			)
			mac := fmt.Sprintf("52:54:00:77:08:%02x", 16+i)
			one := siteagent.Machine{
				ID:       7,
				Revision: 1,
				MACs:     []string{mac},
				Hostname: "web1.example.com",
				IPv4:     &siteagent.Address{Prefix: "10.77.0.10/24"},
				Boot:     siteagent.BootInstall,
				Token:    tokens,
				Files:    siteagent.Files{Boot: fromMemory(url)},
			}
			if err := s.client.PutMachine(t.Context(), one); err != nil {
				t.Fatal(err)
			}
			m := s.switchOn(mac, firmware)
			m.shows("SYSTEM: it runs from its disk", 1)
			s.wantStory(7, siteagent.EventLeased, siteagent.EventBooted)
			for _, r := range s.reports() {
				if r.Event == siteagent.EventBooted && !strings.HasPrefix(r.Address, "10.77.0.1") {
					t.Errorf("got a script read from %s, want an address that begins with 10.77.0.1", r.Address)
				}
			}
		})
	}
}
