// Package netboot boots virtual machines from a site agent, installs them, and boots them from their disks.
package netboot

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/devservers/child"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/templates/script"
)

var (
	machines = flag.Bool("machines", false, "boot machines")
	full     = flag.Bool("full", false, "boot all machines, which takes hours")
)

const (
	agentKey    = "the key of the agent in this test"
	url         = "http://10.77.0.1"
	ovmf        = "/usr/share/OVMF/OVMF_"
	waitTimeout = 15 * time.Minute // QEMU emulates the processors, which is slow
)

// site is a network with a bridge, to which an agent and machines are connected.
type site struct {
	*testing.T
	space  string // the name of the network namespace
	host   string // the agent's address for processes outside the network
	folder string
	agent  *child.Child
	client *siteagent.Client

	settings []string // variables of the agent that replace the usual ones
}

var (
	shared  string // a folder that all tests share
	program string // the path of the agent

	networks atomic.Int64 // the number of the last network
)

func init() { networks.Store(rand.Int64N(16_000)) }

func TestMain(m *testing.M) {
	os.Exit(func() int {
		flag.Parse()
		if !*machines {
			return m.Run()
		}
		var err error
		if shared, err = os.MkdirTemp("", "netboot-"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(shared)
		program = filepath.Join(shared, "site-agent")
		build := exec.Command("go", "build", "-o", program, "github.com/ironplane/ironplane/services/pxe/cmd/site-agent")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if output, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%v\n%s", err, output)
			return 1
		}
		return m.Run()
	}())
}

func newSite(t *testing.T) *site {
	t.Helper()
	n := int(networks.Add(1)) % 16_000
	s := &site{T: t, space: fmt.Sprintf("ironplane%d", n), folder: t.TempDir()}
	outside := fmt.Sprintf("100.%d.%d", 64+n/256, n%256)
	s.host = outside + ".2"
	shell(t, "/", "ip netns add "+s.space)
	t.Cleanup(func() {
		if err := exec.Command("ip", "netns", "del", s.space).Run(); err != nil {
			t.Error(err)
		}
	})
	shell(t, "/", fmt.Sprintf(`
ip link add v%[2]d type veth peer name out netns %[1]s
ip addr add %[3]s.1/30 dev v%[2]d
ip link set v%[2]d up
ip -n %[1]s addr add %[3]s.2/30 dev out
ip -n %[1]s link set out up
ip -n %[1]s link set lo up
ip -n %[1]s link add br0 type bridge forward_delay 0 stp_state 0
ip -n %[1]s addr add 10.77.0.1/24 dev br0
ip -n %[1]s link set br0 up
`, s.space, n, outside))
	shell(t, s.folder, testkit.CodeBlock(t, document, "netboot bootloaders"), "IRONPLANE_AGENT_FOLDER="+s.folder)
	s.start()
	t.Cleanup(func() {
		if err := s.agent.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	httpClient, err := siteagent.NewHTTPClient("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(httpClient.CloseIdleConnections)
	s.client = &siteagent.Client{URL: "http://" + s.host + ":8443", Key: secret.New(agentKey), HTTP: httpClient}
	s.await("the agent is healthy", waitTimeout, s.isHealthy)
	return s
}

func (s *site) isHealthy() bool {
	_, err := s.client.GetHealth(s.Context())
	return err == nil
}

// start starts the agent.
func (s *site) start() {
	s.Helper()
	cmd := exec.Command("ip", "netns", "exec", s.space, program)
	cmd.Env = append(
		os.Environ(),
		"IRONPLANE_AGENT_FOLDER="+s.folder,
		"IRONPLANE_AGENT_KEY="+agentKey,
		"IRONPLANE_LISTEN="+s.host+":8443",
		"IRONPLANE_AGENT_PLAIN=true",
		"IRONPLANE_AGENT_MACHINES_LISTEN=10.77.0.1:80",
		"IRONPLANE_AGENT_TFTP_LISTEN=10.77.0.1:69",
		"IRONPLANE_AGENT_DHCP=authoritative",
		"IRONPLANE_AGENT_DHCP_INTERFACE=br0",
		"IRONPLANE_AGENT_DISCOVER=true",
		"IRONPLANE_AGENT_DHCP_POOL=10.77.0.200-10.77.0.250/24",
	)
	cmd.Env = append(cmd.Env, s.settings...)
	cmd.Stderr = os.Stderr
	var err error
	if s.agent, err = child.Start(cmd, syscall.SIGTERM, syscall.SIGKILL); err != nil {
		s.Fatal(err)
	}
}

// await waits until is returns true. It does not use testkit.Eventually, because emulated machines need longer
// deadlines.
func (s *site) await(condition string, within time.Duration, is func() bool) {
	s.Helper()
	for deadline := time.Now().Add(within); !is(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.Fatalf("got no change within %s, want that %s", within, condition)
		}
	}
}

// killAgent kills the agent, starts it again, and waits until it is healthy.
func (s *site) killAgent() {
	s.Helper()
	if err := syscall.Kill(s.agent.PID(), syscall.SIGKILL); err != nil {
		s.Fatal(err)
	}
	<-s.agent.Done()
	s.start()
	s.await("the agent is healthy", waitTimeout, s.isHealthy)
}

// reports returns all reports of machines in the agent's feed.
func (s *site) reports() (all []siteagent.Report) {
	s.Helper()
	for after := int64(0); ; {
		found, err := s.client.GetFeed(s.Context(), after)
		if err != nil {
			s.Fatal(err)
		}
		if len(found.Entries) == 0 {
			return all
		}
		for _, e := range found.Entries {
			if after = e.Number; e.Machine != nil {
				all = append(all, *e.Machine)
			}
		}
	}
}

// vm is a virtual machine.
type vm struct {
	*site
	arguments []string // the arguments of ip, which starts QEMU
	process   *child.Child
	console   *console
	monitor   string
}

// console records the output of a machine.
type console struct {
	mu    sync.Mutex
	text  bytes.Buffer
	shown io.Writer // a copy of the output goes there, unless it is nil
}

// show copies the output to a writer, from its beginning on.
func (c *console) show(to io.Writer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shown = to
	_, _ = to.Write(c.text.Bytes())
}

func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shown != nil {
		_, _ = c.shown.Write(p)
	}
	return c.text.Write(p)
}

func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

// newMachine returns a machine with an empty disk that is switched off.
func (s *site) newMachine(mac, firmware string, megabytes int) *vm {
	s.Helper()
	folder := s.TempDir()
	tap := "tap" + strings.ReplaceAll(mac[9:], ":", "")
	chipset, keys := "pc", ""
	if firmware == script.SecureBoot {
		chipset, keys = "q35,smm=on", ".ms" // with Microsoft's keys
	}
	shell(s, folder, fmt.Sprintf(`
ip -n %[1]s tuntap add %[2]s mode tap
ip -n %[1]s link set %[2]s master br0 up
truncate -s 4G disk
cp %[3]sVARS_4M%[4]s.fd vars
`, s.space, tap, ovmf, keys))
	m := &vm{site: s, console: &console{}, monitor: filepath.Join(folder, "monitor")}
	m.arguments = []string{
		"netns",
		"exec",
		s.space,
		"qemu-system-x86_64",
		"-nodefaults",
		"-display",
		"none",
		"-m",
		fmt.Sprint(megabytes),
		"-serial",
		"stdio",
		"-accel",
		"tcg",
		"-monitor",
		"unix:" + m.monitor + ",server=on,wait=off",
		"-netdev",
		"tap,id=n,script=no,downscript=no,ifname=" + tap,
		"-drive",
		"if=none,id=d,format=raw,file=" + filepath.Join(folder, "disk"),
		"-device",
		"virtio-blk-pci,drive=d,bootindex=2",
	}
	card := "virtio-net-pci,netdev=n,bootindex=1,mac=" + mac
	switch firmware {
	case "bios":
		m.arguments = append(m.arguments, "-M", "pc,graphics=off", "-device", card)
	default:
		m.arguments = append(
			m.arguments,
			"-M",
			chipset,
			"-device",
			card+",romfile=",
			"-drive",
			"if=pflash,format=raw,readonly=on,file="+ovmf+"CODE_4M"+keys+".fd",
			"-drive",
			"if=pflash,format=raw,file="+filepath.Join(folder, "vars"),
		)
		if firmware == script.SecureBoot {
			m.arguments = append(m.arguments, "-global", "driver=cfi.pflash01,property=secure,value=on")
		}
		if firmware != "uefi" && firmware != script.SecureBoot {
			m.arguments = append(m.arguments, "-fw_cfg", "name=opt/org.tianocore/IPv4PXESupport,string=n")
		}
		if firmware != "pxe6" {
			m.arguments = append(m.arguments, "-fw_cfg", "name=opt/org.tianocore/IPv6PXESupport,string=n")
		}
	}
	s.Cleanup(func() {
		if m.process != nil {
			_ = m.process.Stop(context.Background())
		}
	})
	return m
}

// switchOn creates a machine with an empty disk and switches it on.
func (s *site) switchOn(mac, firmware string) *vm {
	s.Helper()
	m := s.newMachine(mac, firmware, 512)
	m.on()
	return m
}

// on switches a machine on.
func (m *vm) on() {
	m.Helper()
	cmd := exec.Command("ip", m.arguments...)
	cmd.Stdout, cmd.Stderr = m.console, m.console
	var err error
	if m.process, err = child.Start(cmd, syscall.SIGKILL); err != nil {
		m.Fatal(err)
	}
}

// awaitOff waits until the machine has switched itself off.
func (m *vm) awaitOff() {
	m.Helper()
	select {
	case <-m.process.Done():
	case <-time.After(waitTimeout):
		m.Fatalf("got a machine that is still on, want it off:\n%s", m.console)
	}
}

// reset resets the machine, as its button does.
func (m *vm) reset() {
	m.Helper()
	monitor, err := net.Dial("unix", m.monitor)
	if err != nil {
		m.Fatal(err)
	}
	defer monitor.Close()
	output := bufio.NewReader(monitor)
	prompt := func() {
		for !m.Failed() {
			if text, err := output.ReadString(')'); err != nil {
				m.Fatal(err)
			} else if strings.HasSuffix(text, "(qemu)") {
				return
			}
		}
	}
	if err := monitor.SetDeadline(time.Now().Add(waitTimeout)); err != nil {
		m.Fatal(err)
	}
	prompt()
	if _, err := monitor.Write([]byte("system_reset\n")); err != nil {
		m.Fatal(err)
	}
	prompt() // the reset is done
}

// shows waits until the console has shown a text at least so many times.
func (m *vm) shows(text string, times int) {
	m.Helper()
	shown := func() bool { return strings.Count(m.console.String(), text) >= times }
	for deadline := time.Now().Add(waitTimeout); !shown(); time.Sleep(100 * time.Millisecond) {
		select {
		case <-m.process.Done():
			if !shown() {
				m.Fatalf("got an end without %q, want it shown:\n%s", text, m.console)
			}
		default:
		}
		if time.Now().After(deadline) {
			m.Fatalf("got a console without %q, want it shown:\n%s", text, m.console)
		}
	}
}
