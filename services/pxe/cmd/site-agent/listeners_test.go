package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ironplane/ironplane/pkg/runtime/process"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// freeAddress returns an address of this machine at which nothing listens.
func freeAddress(t *testing.T, network string) string {
	t.Helper()
	if network == "udp" {
		conn, err := net.ListenPacket("udp", "127.0.0.1:0")
		testkit.Must(t, err)
		defer conn.Close()
		return conn.LocalAddr().String()
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

// run serves an agent with all servers but DHCP, until the test ends.
func run(t *testing.T, folder string) *config {
	t.Helper()
	c := &config{
		Folder: folder, Key: secret.New("the API key of an agent in tests"), Plain: true, Listen: freeAddress(t, "tcp"),
		SSH: freeAddress(t, "tcp"), Machines: freeAddress(t, "tcp"), TFTP: freeAddress(t, "udp"),
		OperationsConfig: process.OperationsConfig{Operations: freeAddress(t, "tcp")},
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("got %v when the agent stopped, want no error", err)
		}
	})
	return c
}

// awaitReady waits until /readyz of an agent has a status, and a check says text.
func awaitReady(t *testing.T, c *config, code int, check, text string) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("/readyz answers %d, and %s is %s", code, check, text), func() bool {
		response, err := http.Get("http://" + c.Operations + "/readyz")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		var is struct{ Checks map[string]string }
		return json.NewDecoder(response.Body).Decode(&is) == nil && response.StatusCode == code && strings.Contains(is.Checks[check], text)
	})
}

// awaitProblem waits until the agent tells the control plane about a problem, or about none if text is empty.
func awaitProblem(t *testing.T, c *config, text string) {
	t.Helper()
	client := siteagent.Client{URL: "http://" + c.Listen, Key: c.Key, HTTP: http.DefaultClient}
	testkit.Eventually(t, "the agent reports the problem "+text, func() bool {
		feed, err := client.GetFeed(t.Context(), 0)
		if text == "" {
			return err == nil && len(feed.Health.Problems) == 0
		}
		return err == nil && slices.ContainsFunc(feed.Health.Problems, func(p string) bool { return strings.Contains(p, text) })
	})
}

// When the disk is full, /readyz says so, and the control plane hears of it.
func TestReadySaysDiskFull(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=70m"); err != nil {
		t.Skip("a small disk needs root, to mount it: ", err)
	}
	t.Cleanup(func() { testkit.Must(t, syscall.Unmount(disk, syscall.MNT_DETACH)) })
	c := run(t, disk)
	awaitReady(t, c, http.StatusOK, "disk", "ok")
	awaitProblem(t, c, "")
	filling := filepath.Join(disk, "something else")
	testkit.Must(t, os.WriteFile(filling, make([]byte, 20<<20), 0o600))
	awaitReady(t, c, http.StatusServiceUnavailable, "disk", "the disk is full")
	awaitProblem(t, c, "the disk is full")
	testkit.Must(t, os.Remove(filling))
	awaitReady(t, c, http.StatusOK, "disk", "ok")
	awaitProblem(t, c, "")
}

// A server of the agent that takes no connections is named by /readyz, and the control plane hears of it.
func TestReadySaysListenerClosed(t *testing.T) {
	t.Parallel()
	c := run(t, t.TempDir())
	for _, check := range []string{"listen-control", "listen-machines", "listen-sftp", "listen-tftp"} {
		awaitReady(t, c, http.StatusOK, check, "ok")
	}
	var open []net.Conn
	for range 8 { // as many as one address may have
		conn, err := net.Dial("tcp", c.SSH)
		testkit.Must(t, err)
		_, err = io.ReadAtLeast(conn, make([]byte, 100), 1) // the agent has accepted it
		testkit.Must(t, err)
		open = append(open, conn)
	}
	closed := "connections to " + c.SSH + " (IRONPLANE_AGENT_SSH_LISTEN) are closed at once: too many are open"
	awaitReady(t, c, http.StatusServiceUnavailable, "listen-sftp", closed)
	awaitProblem(t, c, closed)
	for _, conn := range open {
		testkit.Must(t, conn.Close())
	}
	awaitReady(t, c, http.StatusOK, "listen-sftp", "ok")
	awaitProblem(t, c, "")
}

// A check of an address at which nothing answers fails, and so does one of DHCP whose interface lost its address.
func TestChecksOfListeners(t *testing.T) {
	t.Parallel()
	machines := freeAddress(t, "tcp")
	nothing := config{
		Listen: freeAddress(t, "tcp"), Machines: machines, SSH: freeAddress(t, "tcp"), TFTP: freeAddress(t, "udp"),
		DHCP: string(siteagent.DHCPProxy), Interface: "lo", Folder: t.TempDir(),
	}
	other, missing, withIPv6 := nothing, nothing, nothing
	other.Machines = "192.0.2.1:80"
	missing.Interface = "missing0"
	withIPv6.IPv6 = netip.MustParseAddr("2001:db8::1")
	for _, one := range []struct {
		config      config
		check, want string
	}{
		{nothing, "listen-control", "nothing accepts connections at " + nothing.Listen + " (IRONPLANE_LISTEN)"},
		{nothing, "listen-machines", "nothing accepts connections at " + machines + " (IRONPLANE_AGENT_MACHINES_LISTEN)"},
		{nothing, "listen-sftp", "nothing accepts connections at " + nothing.SSH + " (IRONPLANE_AGENT_SSH_LISTEN)"},
		{nothing, "listen-tftp", "TFTP does not answer at " + nothing.TFTP + " (IRONPLANE_AGENT_TFTP_LISTEN)"},
		{nothing, "listen-dhcp", ""},
		{other, "listen-dhcp", "DHCP is off: the interface lo (IRONPLANE_AGENT_DHCP_INTERFACE) lost the address 192.0.2.1"},
		{withIPv6, "listen-dhcp", "DHCP is off: the interface lo (IRONPLANE_AGENT_DHCP_INTERFACE) lost the address 2001:db8::1"},
		{missing, "listen-dhcp", "DHCP is off: the interface missing0 (IRONPLANE_AGENT_DHCP_INTERFACE) is missing"},
	} {
		found := false
		for _, check := range one.config.readyChecks() {
			if check.Name != one.check {
				continue
			}
			found = true
			got := ""
			if err := check.Ask(t.Context()); err != nil {
				got = err.Error()
			}
			if got != one.want {
				t.Errorf("%s: got %q, want %q", one.check, got, one.want)
			}
		}
		if !found {
			t.Errorf("got no check %s, want one", one.check)
		}
	}
}
