package files

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/ironplane/ironplane/deploy/internal/ports"
	"github.com/ironplane/ironplane/pkg/devservers/child"
	"github.com/ironplane/ironplane/pkg/runtime/process"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

const plainNginx = `
daemon off;
worker_processes auto;
pid nginx.pid;
error_log stderr error;
events {}
http {
	access_log off;
	sendfile on;
	client_body_temp_path temp;
	proxy_temp_path temp;
	fastcgi_temp_path temp;
	uwsgi_temp_path temp;
	scgi_temp_path temp;
	server {
		listen %s;
		root %s;
	}
}
`

// BenchmarkHTTP reads a file of 256 MiB from an agent, as machines do, and from nginx, in turn.
func BenchmarkHTTP(b *testing.B) {
	nginx := findProgram(b, "nginx")
	s := newSite(b)
	size := s.fill(1, func(int) int64 { return 256 << 20 })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(b, err)
	ctx, end := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { _ = process.Serve(ctx, listener, s.agent.MachineHandler(), slog.New(slog.DiscardHandler)) })
	b.Cleanup(func() {
		end()
		serving.Wait()
	})
	free, err := ports.Free(1)
	testkit.Must(b, err)
	folder := b.TempDir()
	testkit.Must(b, os.Chmod(folder, 0o755))
	config := filepath.Join(folder, "nginx.conf")
	text := fmt.Sprintf(plainNginx, free[0], s.path(""))
	if os.Geteuid() == 0 {
		text = "user root;" + text
	}
	testkit.Must(b, os.WriteFile(config, []byte(text), 0o600))
	start(b, func() bool { return isListening(free[0]) }, nginx, "-p", folder, "-c", config)
	httpClient := &http.Client{Transport: &http.Transport{}}
	defer httpClient.CloseIdleConnections()
	var sums [2][sha256.Size]byte
	for i, at := range []string{listener.Addr().String(), free[0]} {
		sum := sha256.New()
		get(b, httpClient, at, size, sum)
		sums[i] = [sha256.Size]byte(sum.Sum(nil))
	}
	if sums[0] != sums[1] {
		b.Fatalf("got contents of SHA-256 %x and %x, want the same", sums[0], sums[1])
	}
	var rates, ratios []float64
	for b.Loop() {
		own := get(b, httpClient, listener.Addr().String(), size, io.Discard)
		rsyncWay := get(b, httpClient, free[0], size, io.Discard)
		rates, ratios = append(rates, float64(size)/own.Seconds()/1e6), append(ratios, rsyncWay.Seconds()/own.Seconds())
	}
	b.ReportMetric(testkit.Median(rates), "MB/s")
	b.ReportMetric(testkit.Median(ratios), "times-nginx")
}

// get downloads the file, and returns how long that took.
func get(b *testing.B, httpClient *http.Client, at string, size int64, target io.Writer) time.Duration {
	b.Helper()
	began := time.Now()
	response, err := httpClient.Get("http://" + at + "/00/0")
	testkit.Must(b, err)
	defer response.Body.Close()
	n, err := io.Copy(target, response.Body)
	if err != nil || n != size {
		b.Fatalf("got %d bytes, %v, want %d", n, err, size)
	}
	return time.Since(began)
}

const (
	// clients is the number of machines, and concurrency how many of them send requests at a time.
	clients, concurrency = 1000, 32
	// leaseTimeout is the limit for all of them together.
	leaseTimeout = 5 * time.Minute
)

// BenchmarkDHCP measures how many machines a second get their addresses through a relay agent, each by DISCOVER, OFFER, REQUEST
// and ACK, from an agent and from dnsmasq in turn. First leases are measured separately from renewals, since an agent writes them
// to its disk and reports them.
func BenchmarkDHCP(b *testing.B) {
	dnsmasq := findProgram(b, "dnsmasq")
	if os.Geteuid() != 0 {
		b.Skip("creating a network needs root")
	}
	folder := b.TempDir()
	program := filepath.Join(folder, "site-agent")
	build := exec.Command("go", "build", "-o", program, "github.com/ironplane/ironplane/services/pxe/cmd/site-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		b.Fatalf("build the agent: %v\n%s", err, output)
	}
	own, rsyncWay := newSegment(b, 126), newSegment(b, 127)
	own.run(
		program,
		[]string{
			"IRONPLANE_AGENT_FOLDER=" + folder,
			"IRONPLANE_AGENT_KEY=" + key,
			"IRONPLANE_LISTEN=" + own.server + ":8443",
			"IRONPLANE_AGENT_PLAIN=true",
			"IRONPLANE_AGENT_MACHINES_LISTEN=" + own.server + ":80",
			"IRONPLANE_AGENT_DHCP=authoritative",
			"IRONPLANE_AGENT_DHCP_INTERFACE=eth0",
		},
	)
	own.name()
	hostsFile := filepath.Join(folder, "hosts")
	testkit.Must(b, os.WriteFile(hostsFile, rsyncWay.hostsFile(), 0o600))
	rsyncWay.run(
		dnsmasq,
		nil,
		"--keep-in-foreground",
		"--dhcp-hostsfile="+hostsFile,
		"--port=0",
		"--conf-file=/dev/null",
		"--pid-file",
		"--user=root",
		"--interface=eth0",
		"--bind-interfaces",
		"--no-ping",
		"--dhcp-authoritative",
		"--dhcp-lease-max=2000",
		"--dhcp-range=100.127.0.0,static,255.255.0.0",
		"--dhcp-boot=undionly.kpxe",
		"--dhcp-leasefile="+filepath.Join(folder, "leases"),
	)
	both := []*segment{own, rsyncWay}
	var first, renewals [2][]float64
	for i, s := range both {
		s.lease(0, 1) // waits until the server responds
		first[i] = append(first[i], s.lease(1, clients))
	}
	for b.Loop() {
		for i, s := range both {
			renewals[i] = append(renewals[i], s.lease(1, clients))
		}
	}
	b.ReportMetric(testkit.Median(first[0]), "first/s")
	b.ReportMetric(testkit.Median(first[0])/testkit.Median(first[1]), "first-times-dnsmasq")
	b.ReportMetric(testkit.Median(renewals[0]), "leases/s")
	b.ReportMetric(testkit.Median(renewals[0])/testkit.Median(renewals[1]), "times-dnsmasq")
}

// segment is the network of a DHCP server. The benchmark is the relay agent there.
type segment struct {
	*testing.B
	second int // byte of its addresses
	space  string
	server string
	relay  net.IP
	conn   *net.UDPConn
}

func newSegment(b *testing.B, second int) *segment {
	b.Helper()
	s := &segment{
		B:      b,
		second: second,
		space:  fmt.Sprintf("bench%d", second),
		server: fmt.Sprintf("100.%d.0.1", second),
		relay:  net.IPv4(100, byte(second), 0, 2).To4(),
	}
	ip := func(arguments ...string) {
		if output, err := exec.Command("ip", arguments...).CombinedOutput(); err != nil {
			b.Errorf("ip %v: %v\n%s", arguments, err, output)
		}
	}
	ip("netns", "add", s.space)
	b.Cleanup(func() { ip("netns", "del", s.space) })
	ip("link", "add", s.space, "type", "veth", "peer", "name", "eth0", "netns", s.space)
	ip("addr", "add", s.relay.String()+"/16", "dev", s.space)
	ip("link", "set", s.space, "up")
	ip("-n", s.space, "addr", "add", s.server+"/16", "dev", "eth0")
	ip("-n", s.space, "link", "set", "eth0", "up")
	ip("-n", s.space, "link", "set", "lo", "up")
	var err error
	s.conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: s.relay, Port: dhcpv4.ServerPort})
	testkit.Must(b, err)
	b.Cleanup(func() { _ = s.conn.Close() })
	return s
}

// run starts a program in the network. It stops with the benchmark.
func (s *segment) run(program string, settings []string, arguments ...string) {
	s.Helper()
	cmd := exec.Command("ip", append([]string{"netns", "exec", s.space, program}, arguments...)...)
	cmd.Env, cmd.Stdout = append(os.Environ(), settings...), os.Stderr
	running, err := child.Start(cmd, syscall.SIGTERM, syscall.SIGKILL)
	testkit.Must(s.B, err)
	s.Cleanup(func() { _ = running.Stop(context.Background()) })
}

// name tells the agent the machines' addresses.
func (s *segment) name() {
	s.Helper()
	httpClient, err := siteagent.NewHTTPClient("")
	testkit.Must(s.B, err)
	defer httpClient.CloseIdleConnections()
	agent := &siteagent.Client{URL: "http://" + s.server + ":8443", Key: secret.New(key), HTTP: httpClient}
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if _, err = agent.GetHealth(s.Context()); err == nil || time.Since(began) > startTimeout {
			break
		}
	}
	testkit.Must(s.B, err)
	for n := range clients + 1 {
		testkit.Must(
			s.B,
			agent.PutMachine(s.Context(), siteagent.Machine{ID: int64(n + 1), MACs: []string{macOf(n).String()}, Boot: siteagent.BootWait,
				IPv4: &siteagent.Address{Prefix: s.address(n) + "/16"}}),
		)
	}
}

// hostsFile returns the machines in dnsmasq's format.
func (s *segment) hostsFile() (text []byte) {
	for n := range clients + 1 {
		text = fmt.Appendf(text, "%s,%s\n", macOf(n), s.address(n))
	}
	return text
}

// address returns the address of a machine.
func (s *segment) address(n int) string {
	return fmt.Sprintf("100.%d.%d.%d", s.second, 1+n/200, 1+n%200)
}

func macOf(n int) net.HardwareAddr {
	return net.HardwareAddr{0x52, 0x54, 0, 0, byte(n >> 8), byte(n)}
}

// lease requests addresses for machines, and returns the number of leases a second. It repeats lost requests after a second.
func (s *segment) lease(from, count int) (rate float64) {
	s.Helper()
	began := time.Now()
	pending := map[string]*dhcpv4.DHCPv4{} // by MAC address
	send := func(p *dhcpv4.DHCPv4) {
		pending[p.ClientHWAddr.String()] = p
		_, err := s.conn.WriteTo(p.ToBytes(), &net.UDPAddr{IP: net.ParseIP(s.server), Port: dhcpv4.ServerPort})
		testkit.Must(s.B, err)
	}
	next, packet := 0, make([]byte, 2000)
	discover := func() {
		if next == count {
			return
		}
		p, err := dhcpv4.NewDiscovery(
			macOf(from+next),
			dhcpv4.WithRelay(s.relay),
			dhcpv4.WithOption(dhcpv4.OptClassIdentifier("PXEClient:Arch:00007:UNDI:003000")),
			dhcpv4.WithOption(dhcpv4.OptClientArch(iana.EFI_BC)),
		)
		testkit.Must(s.B, err)
		next++
		send(p)
	}
	for range concurrency {
		discover()
	}
	for len(pending) > 0 {
		if time.Since(began) > leaseTimeout {
			s.Fatalf("got %d machines without an address within %s, want none", len(pending), leaseTimeout)
		}
		testkit.Must(s.B, s.conn.SetReadDeadline(time.Now().Add(time.Second)))
		n, err := s.conn.Read(packet)
		if err != nil {
			for _, p := range pending {
				send(p)
			}
			continue
		}
		r, err := dhcpv4.FromBytes(packet[:n])
		testkit.Must(s.B, err)
		p := pending[r.ClientHWAddr.String()]
		if p == nil || p.TransactionID != r.TransactionID {
			continue
		}
		switch {
		case r.MessageType() == dhcpv4.MessageTypeOffer && p.MessageType() == dhcpv4.MessageTypeDiscover:
			wanted, err := dhcpv4.NewRequestFromOffer(
				r,
				dhcpv4.WithRelay(s.relay),
				dhcpv4.WithOption(dhcpv4.OptClassIdentifier(p.ClassIdentifier())),
				dhcpv4.WithOption(dhcpv4.OptClientArch(iana.EFI_BC)),
			)
			testkit.Must(s.B, err)
			send(wanted)
		case r.MessageType() == dhcpv4.MessageTypeAck:
			delete(pending, r.ClientHWAddr.String())
			discover()
		case r.MessageType() == dhcpv4.MessageTypeNak:
			s.Fatalf("got the refusal %s, want an address", r.Summary())
		}
	}
	return float64(count) / time.Since(began).Seconds()
}
