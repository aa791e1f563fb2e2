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

// restartWith starts the agent again with variables that replace the usual ones.
func (s *site) restartWith(settings ...string) {
	s.Helper()
	s.settings = settings
	s.killAgent()
}

// runIn starts a program in a network namespace until the test ends.
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

// wantEvents tests that the events of a machine contain these, in this order. Others may come in between.
func (s *site) wantEvents(id int64, want ...string) {
	s.Helper()
	var events []string
	for _, r := range s.reports() {
		if r.ID == id {
			events = append(events, r.Event)
		}
	}
	rest := events
	for _, event := range want {
		i := slices.Index(rest, event)
		if i < 0 {
			s.Errorf("got the story %v, want %v", events, want)
			return
		}
		rest = rest[i+1:]
	}
}

// fromMemory returns a boot script that runs the image's system from the agent at a URL.
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

// TestIPv6 boots machines without IPv4, by TFTP and by HTTP over IPv6.
func TestIPv6(t *testing.T) {
	t.Parallel()
	requireTools(t, routerIPv6)
	image := newImage(t)
	for i, firmware := range []string{"pxe6", "http6"} {
		t.Run(firmware, func(t *testing.T) {
			t.Parallel()
			if i > 0 {
				requireFull(t)
			}
			s := newSite(t)
			image.addFiles(t, s.folder)
			shell(t, s.folder, fmt.Sprintf("ip -n %s addr add fd77::1/64 dev br0 nodad", s.space))
			s.restartWith("IRONPLANE_AGENT_DHCP_IPV6=fd77::1")
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
			s.wantEvents(7, siteagent.EventLeased, siteagent.EventBooted)
		})
	}
}

// udhcpcShows prints the lease of a client.
const udhcpcShows = `#!/bin/sh
if [ "$1" = bound ]; then
  ip addr add "$ip/$mask" dev "$interface"
  ip route add default via "$router"
  echo "has $ip of $serverid, boots $boot_file"
fi
`

// TestRelayAgent tests leases behind a relay agent that names the port. A machine gets its address and script at
// the port of its first request. A client with the same MAC address at another port gets neither.
func TestRelayAgent(t *testing.T) {
	t.Parallel()
	requireTools(t, relayAgent)
	const mac = "52:54:00:77:07:01"
	s := newSite(t)
	s.restartWith("IRONPLANE_AGENT_DHCP_RELAYS=10.77.0.254")
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
	requestLease := func(client string) string {
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
	var output string
	s.await("the machine has its address", waitTimeout, func() bool { // the relay agent may still be starting
		output = requestLease(clients[0])
		return strings.Contains(output, "has ")
	})
	if !strings.Contains(output, "has 10.78.0.10 of 10.77.0.1, boots local/boot/undionly.kpxe") {
		t.Errorf("got %s, want a lease of 10.78.0.10 that boots undionly.kpxe", output)
	}
	if output := requestLease(clients[1]); strings.Contains(output, "has ") {
		t.Errorf("got %s at another port, want no lease", output)
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
	s.wantEvents(7, siteagent.EventLeased, siteagent.EventRefused, siteagent.EventBooted)
	var refused string
	for _, r := range s.reports() {
		if r.Event == siteagent.EventRefused {
			refused = r.Response
		}
	}
	if !strings.Contains(refused, "it asks at port port1") || !strings.Contains(refused, "at port port0") {
		t.Errorf("got the refusal %s, want one that names port1 and port0", refused)
	}
}

// TestBesideAnotherServer boots a machine at a site with a DHCP server of its own. That server gives the address,
// and the agent gives the boot file.
func TestBesideAnotherServer(t *testing.T) {
	t.Parallel()
	requireTools(t, dhcpServer)
	image := newImage(t)
	for i, firmware := range []string{"bios", "uefi"} {
		t.Run(firmware, func(t *testing.T) {
			t.Parallel()
			if i > 0 {
				requireFull(t)
			}
			s := newSite(t)
			image.addFiles(t, s.folder)
			s.restartWith("IRONPLANE_AGENT_DHCP=proxy", "IRONPLANE_AGENT_DHCP_POOL=")
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
			s.wantEvents(7, siteagent.EventLeased, siteagent.EventBooted)
			for _, r := range s.reports() {
				if r.Event == siteagent.EventBooted && !strings.HasPrefix(r.Address, "10.77.0.1") {
					t.Errorf("got a script read from %s, want an address that begins with 10.77.0.1", r.Address)
				}
			}
		})
	}
}
