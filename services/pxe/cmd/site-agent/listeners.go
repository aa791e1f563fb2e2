package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/agent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/tree"
)

const (
	// problemsInterval is how often the agent looks for problems to report to the control plane.
	problemsInterval = 5 * time.Second
	// answerTimeout is how long the agent's own servers may take to answer a check, and closeTimeout how long a refused connection may
	// take to be closed.
	answerTimeout, closeTimeout = time.Second, 100 * time.Millisecond
)

// readyChecks returns the checks of the running agent: its disk, and each address at which it serves.
func (c *config) readyChecks() []health.Check {
	checks := []health.Check{
		{Name: "disk", Ask: func(context.Context) error {
			free, _, err := tree.Space(c.Folder)
			if err == nil && free < siteagent.MinFreeBytes {
				err = fmt.Errorf("the disk is full: %d MB are free", free/1_000_000)
			}
			return err
		}},
		{Name: "disk-space", Optional: true, Ask: func(context.Context) error {
			free, total, err := tree.Space(c.Folder)
			if err == nil && free < total/20 {
				err = fmt.Errorf("%d of %d MB are free, which is less than a twentieth", free/1_000_000, total/1_000_000)
			}
			return err
		}},
		{Name: "listen-control", Ask: dialCheck("IRONPLANE_LISTEN", c.Listen)},
	}
	if c.Machines != "" {
		checks = append(checks, health.Check{Name: "listen-machines", Ask: dialCheck("IRONPLANE_AGENT_MACHINES_LISTEN", c.Machines)})
	}
	if c.SSH != "" {
		checks = append(checks, health.Check{Name: "listen-sftp", Ask: dialCheck("IRONPLANE_AGENT_SSH_LISTEN", c.SSH)})
	}
	if c.TFTP != "" {
		checks = append(checks, health.Check{Name: "listen-tftp", Ask: tftpCheck(c.TFTP)})
	}
	if c.DHCP != "" {
		checks = append(checks, health.Check{Name: "listen-dhcp", Ask: c.checkInterface})
	}
	return checks
}

// reportProblems tells the control plane which required checks fail, until ctx ends.
func reportProblems(ctx context.Context, a *agent.Agent, checks []health.Check) {
	tick := time.NewTicker(problemsInterval)
	defer tick.Stop()
	for {
		var problems []string
		for _, check := range checks {
			if check.Optional {
				continue
			}
			if err := check.Ask(ctx); err != nil && ctx.Err() == nil {
				problems = append(problems, err.Error())
			}
		}
		a.SetProblems(problems)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// reachable returns the address to reach a listener from the same machine.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}

// dialCheck returns a check that a TCP server accepts a connection, and does not close it at once as one too many.
func dialCheck(variable, address string) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", reachable(address))
		if err != nil {
			return fmt.Errorf("nothing accepts connections at %s (%s)", address, variable)
		}
		defer conn.Close()
		_ = conn.SetReadDeadline(time.Now().Add(closeTimeout))
		if _, err := conn.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("connections to %s (%s) are closed at once: too many are open", address, variable)
		}
		return nil
	}
}

// tftpCheck returns a check that the TFTP server answers. It asks to write a file, which the server refuses at once.
func tftpCheck(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		silent := fmt.Errorf("TFTP does not answer at %s (IRONPLANE_AGENT_TFTP_LISTEN)", address)
		conn, err := new(net.Dialer).DialContext(ctx, "udp", reachable(address))
		if err != nil {
			return silent
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(answerTimeout))
		const opWrite = 2
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, opWrite), "check\x00octet\x00"...)); err != nil {
			return silent
		}
		if _, err := conn.Read(make([]byte, 512)); err != nil {
			return silent
		}
		return nil
	}
}

// checkInterface checks that the machines' interface is up and has the agent's addresses. A DHCP socket that lost its interface gets no
// packets, and no error either.
func (c *config) checkInterface(context.Context) error {
	settings, err := c.dhcpSettings()
	if err != nil {
		return err
	}
	link, err := net.InterfaceByName(c.Interface)
	if err != nil {
		return fmt.Errorf("DHCP is off: the interface %s (IRONPLANE_AGENT_DHCP_INTERFACE) is missing", c.Interface)
	}
	if link.Flags&net.FlagUp == 0 {
		return fmt.Errorf("DHCP is off: the interface %s (IRONPLANE_AGENT_DHCP_INTERFACE) is down", c.Interface)
	}
	addresses, err := link.Addrs()
	if err != nil {
		return fmt.Errorf("read the addresses of %s: %w", c.Interface, err)
	}
	for _, want := range []netip.Addr{settings.Server, settings.IPv6} {
		if want.IsValid() && !slices.ContainsFunc(addresses, func(a net.Addr) bool {
			prefix, err := netip.ParsePrefix(a.String())
			return err == nil && prefix.Addr().WithZone("") == want
		}) {
			return fmt.Errorf("DHCP is off: the interface %s (IRONPLANE_AGENT_DHCP_INTERFACE) lost the address %s", c.Interface, want)
		}
	}
	return nil
}
