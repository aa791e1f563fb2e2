package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/agent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/dhcp"
	"github.com/ironplane/ironplane/services/pxe/siteagent/machine"
	"github.com/ironplane/ironplane/services/pxe/siteagent/tftp"
	"github.com/ironplane/ironplane/services/pxe/siteagent/tree"
)

// machineSettings returns the settings for booting machines.
func (c *config) machineSettings() (s machine.Settings, err error) {
	s.Discover, s.Pool, s.DHCP = c.Discover, c.Pool, c.dhcpHealth
	s.Sign = func(text []byte) (string, error) {
		key, err := agent.LoadOrCreateHostKey(c.hostKeyFile())
		if err != nil {
			return "", err
		}
		return agent.Sign(key, text)
	}
	if c.Machines == "" {
		return s, nil
	}
	s.URL = strings.TrimSuffix(c.MachinesURL, "/")
	if s.URL == "" {
		address, err := netip.ParseAddrPort(c.Machines)
		if err != nil || address.Addr().IsUnspecified() {
			return s, nil
		}
		if s.URL = "http://" + address.String(); address.Port() == 80 {
			s.URL = strings.TrimSuffix(s.URL, ":80")
		}
	}
	if base, err := url.Parse(s.URL); err != nil || base.Scheme != "http" || base.Host == "" || base.RawQuery != "" || base.Fragment != "" {
		return s, errors.New("IRONPLANE_AGENT_MACHINES_URL: must be a URL such as http://10.1.0.1:8080")
	}
	if c.IPv6.IsValid() {
		addrPort, err := c.ipv6Address(c.Machines)
		if err != nil {
			return s, err
		}
		s.IPv6URL = "http://" + strings.TrimSuffix(addrPort.String(), ":80")
	}
	return s, nil
}

// ipv6Address returns the agent's IPv6 address with the port of another address.
func (c *config) ipv6Address(other string) (netip.AddrPort, error) {
	if !c.IPv6.Is6() || c.IPv6.Is4In6() || !c.IPv6.IsGlobalUnicast() || c.IPv6.Zone() != "" {
		return netip.AddrPort{}, errors.New("IRONPLANE_AGENT_DHCP_IPV6: must be an IPv6 address such as 2001:db8:1::1")
	}
	addrPort, err := netip.ParseAddrPort(other)
	if err != nil {
		return addrPort, fmt.Errorf(
			"IRONPLANE_AGENT_DHCP_IPV6: needs a port in IRONPLANE_AGENT_MACHINES_LISTEN or IRONPLANE_AGENT_TFTP_LISTEN: %w",
			err,
		)
	}
	return netip.AddrPortFrom(c.IPv6, addrPort.Port()), nil
}

// dhcpSettings returns the settings of the DHCP server.
func (c *config) dhcpSettings() (s dhcp.Settings, err error) {
	machines, err := c.machineSettings()
	s = dhcp.Settings{
		Interface: c.Interface,
		Proxy:     c.DHCP == string(siteagent.DHCPProxy),
		URL:       machines.URL,
		IPv6:      c.IPv6,
		IPv6URL:   machines.IPv6URL,
		Relays:    c.Relays,
	}
	switch {
	case err != nil:
		return s, err
	case c.DHCP != string(siteagent.DHCPAuthoritative) && c.DHCP != string(siteagent.DHCPProxy):
		return s, errors.New("IRONPLANE_AGENT_DHCP: must be authoritative or proxy")
	case c.Interface == "":
		return s, errors.New("IRONPLANE_AGENT_DHCP_INTERFACE: is required for DHCP")
	case c.Discover && !s.Proxy && !c.Pool.First.IsValid():
		return s, errors.New("IRONPLANE_AGENT_DISCOVER: needs IRONPLANE_AGENT_DHCP_POOL, with addresses for unknown machines")
	}
	address, err := netip.ParseAddrPort(c.Machines)
	if err != nil || !address.Addr().Is4() || address.Addr().IsUnspecified() {
		return s, errors.New(
			"IRONPLANE_AGENT_DHCP: needs IRONPLANE_AGENT_MACHINES_LISTEN with the agent's IPv4 address, such as 10.1.0.1:80",
		)
	}
	s.Server = address.Addr()
	return s, nil
}

// dhcpHealth describes DHCP and TFTP for the agent's health. Machines behind a relay, or with addresses of another DHCP server,
// may be in any network.
func (c *config) dhcpHealth() siteagent.DHCPHealth {
	h := siteagent.DHCPHealth{Mode: siteagent.DHCPMode(c.DHCP), TFTP: c.TFTP != ""}
	if h.Mode != siteagent.DHCPAuthoritative || len(c.Relays) > 0 {
		return h
	}
	link, err := net.InterfaceByName(c.Interface)
	if err != nil {
		return h
	}
	addresses, _ := link.Addrs() // without addresses there are no networks to compare with
	for _, address := range addresses {
		if network, err := netip.ParsePrefix(address.String()); err == nil && !network.Addr().IsLinkLocalUnicast() {
			h.Networks = append(h.Networks, network.Masked())
		}
	}
	return h
}

// serveBoot starts the TFTP and DHCP servers, for machines that do not run iPXE yet.
func (c *config) serveBoot(ctx context.Context, a *agent.Agent, files *tree.Tree, log *slog.Logger, run func(func() error)) error {
	if c.TFTP != "" {
		listen := []string{c.TFTP}
		if c.IPv6.IsValid() {
			addrPort, err := c.ipv6Address(c.TFTP)
			if err != nil {
				return err
			}
			listen = append(listen, addrPort.String())
		}
		for _, listenAddress := range listen {
			address, err := net.ResolveUDPAddr("udp", listenAddress)
			if err != nil {
				return fmt.Errorf("IRONPLANE_AGENT_TFTP_LISTEN: %w", err)
			}
			conn, err := net.ListenUDP("udp", address)
			if err != nil {
				return fmt.Errorf("IRONPLANE_AGENT_TFTP_LISTEN: %w", err)
			}
			server := &tftp.Server{Files: files, Generate: a.Machines().ReadGRUBFile, Log: log, Refusals: a.Refusals()}
			run(func() error { return server.Serve(ctx, conn) })
		}
	}
	if c.DHCP != "" {
		settings, err := c.dhcpSettings()
		if err != nil {
			return err
		}
		run(func() error { return (&dhcp.Server{Settings: settings, Machines: a.Machines(), Log: log}).Run(ctx) })
	}
	return nil
}

// bootChecks returns the checks of TFTP and DHCP.
func (c *config) bootChecks() (checks []health.Check) {
	if c.TFTP != "" {
		checks = append(checks, checkUDP("IRONPLANE_AGENT_TFTP_LISTEN", c.TFTP))
	}
	if c.IPv6.IsValid() {
		checks = append(checks, checkUDP("IRONPLANE_AGENT_DHCP_IPV6", netip.AddrPortFrom(c.IPv6, 547).String()),
			health.Check{Name: "IRONPLANE_AGENT_DHCP_IPV6: the other settings fit", Ask: func(context.Context) error {
				if c.DHCP == "" {
					return errors.New("IRONPLANE_AGENT_DHCP is not set")
				}
				_, err := c.ipv6Address(c.TFTP)
				if c.TFTP == "" {
					_, err = c.ipv6Address(c.Machines)
				}
				return err
			}})
	}
	if c.DHCP != "" {
		checks = append(
			checks,
			checkUDP("IRONPLANE_AGENT_DHCP", "0.0.0.0:67"),
			health.Check{Name: "IRONPLANE_AGENT_DHCP: the other settings fit", Ask: func(context.Context) error {
				_, err := c.dhcpSettings()
				return err
			}},
			health.Check{
				Name: "IRONPLANE_AGENT_FOLDER: has the bootloaders (see docs/do/netboot.md)",
				Ask: func(context.Context) (err error) {
					for _, path := range []string{siteagent.BootloaderBIOS, siteagent.BootloaderUEFI, siteagent.LocalBootUEFI} {
						_, missing := os.Stat(filepath.Join(c.Folder, "files", path))
						err = errors.Join(err, missing)
					}
					return err
				},
			},
			health.Check{
				Name:     "IRONPLANE_AGENT_TFTP_LISTEN: firmware can load files by TFTP",
				Optional: true,
				Ask: func(context.Context) error {
					if c.TFTP == "" {
						return errors.New("not set: only firmware that boots by HTTP can boot")
					}
					return nil
				},
			},
		)
	}
	return checks
}

// checkUDP checks that this program could receive packets at an address.
func checkUDP(variable, address string) health.Check {
	return health.Check{Name: variable + ": " + address + " is free, and this user may listen there", Ask: func(context.Context) error {
		conn, err := net.ListenPacket("udp", address)
		if errors.Is(err, syscall.EADDRINUSE) {
			return errors.New("in use by another program, or by this one if it runs")
		}
		if errors.Is(err, fs.ErrPermission) {
			return errors.New("this user may not listen there: the unit needs CAP_NET_BIND_SERVICE")
		}
		if err != nil {
			return err
		}
		return conn.Close()
	}}
}
