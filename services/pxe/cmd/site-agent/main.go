// Site-agent serves a site's machines: the files of installations, DHCP, TFTP and boot scripts. See docs/do/site-agent.md.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/ironplane/ironplane/pkg/runtime/health"
	"github.com/ironplane/ironplane/pkg/runtime/process"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/pxe/siteagent/agent"
	"github.com/ironplane/ironplane/services/pxe/siteagent/machine"
	"github.com/ironplane/ironplane/services/pxe/siteagent/tree"
)

// config is the agent's configuration from the environment.
type config struct {
	Folder         string         `env:"IRONPLANE_AGENT_FOLDER" required:"serve,fingerprint,host-key" doc:"the folder for files and state. The agent writes nowhere else"`
	Key            secret.String  `env:"IRONPLANE_AGENT_KEY" required:"serve" doc:"the API key for the control plane, the same as http.api_key of the file server: at least 16 characters"`
	Listen         string         `env:"IRONPLANE_LISTEN" default:":8443" doc:"the address of the interface for the control plane and other agents"`
	Plain          bool           `env:"IRONPLANE_AGENT_PLAIN" default:"false" doc:"true: serve HTTP instead of HTTPS, as behind a proxy on the same machine"`
	Certificate    string         `env:"IRONPLANE_AGENT_CERTIFICATE" doc:"the file with the certificate for HTTPS and its intermediates; empty: the agent creates a certificate, and callers pin its fingerprint"`
	CertificateKey string         `env:"IRONPLANE_AGENT_CERTIFICATE_KEY" doc:"the file with the certificate's key"`
	SSH            string         `env:"IRONPLANE_AGENT_SSH_LISTEN" doc:"the address of the SFTP server, such as :2222; empty: no SFTP"`
	AuthorizedKeys string         `env:"IRONPLANE_AGENT_SSH_KEYS" doc:"the file with the SSH public keys of people who upload files, in the form of authorized_keys without options"`
	Machines       string         `env:"IRONPLANE_AGENT_MACHINES_LISTEN" doc:"the address of the HTTP server for booting machines, such as 10.1.0.1:80. It serves all files without a key; empty: no such server"`
	MachinesURL    string         `env:"IRONPLANE_AGENT_MACHINES_URL" doc:"the base URL under which machines reach that server, such as http://10.1.0.1; empty: the address in IRONPLANE_AGENT_MACHINES_LISTEN"`
	DHCP           string         `env:"IRONPLANE_AGENT_DHCP" doc:"authoritative: serve addresses and what to boot; proxy: serve only what to boot, beside another DHCP server; empty: no DHCP"`
	Interface      string         `env:"IRONPLANE_AGENT_DHCP_INTERFACE" doc:"the machines' network interface, such as eth1"`
	IPv6           netip.Addr     `env:"IRONPLANE_AGENT_DHCP_IPV6" doc:"the agent's IPv6 address in the machines' network, such as 2001:db8:1::1. It turns on DHCPv6, and HTTP and TFTP at the ports of IPv4; empty: IPv4 only"`
	Relays         []netip.Prefix `env:"IRONPLANE_AGENT_DHCP_RELAYS" doc:"the source addresses of trusted DHCP relay agents: addresses and CIDRs, separated by commas; empty: none"`
	TFTP           string         `env:"IRONPLANE_AGENT_TFTP_LISTEN" doc:"the address of the TFTP server, such as 10.1.0.1:69; empty: no TFTP"`
	Discover       bool           `env:"IRONPLANE_AGENT_DISCOVER" default:"false" doc:"true: ask unknown machines that boot for their hardware, and report it"`
	Pool           machine.Pool   `env:"IRONPLANE_AGENT_DHCP_POOL" doc:"the addresses for unknown machines, with an optional gateway: 10.1.0.200-10.1.0.250/24,10.1.0.1"`
	process.LogConfig
	process.OperationsConfig
}

func main() {
	var c config
	process.Program{Name: "site-agent", Config: &c, Checks: c.checks, Commands: []process.Command{
		{Name: "serve", Summary: "serve until SIGINT or SIGTERM", Run: c.serve},
		c.Ready(),
		{
			Name:    "fingerprint",
			Summary: "print the certificate's fingerprint, for http.fingerprint of the file server; create a certificate if there is none",
			Run: func(context.Context) error {
				certificate, err := c.loadCertificate()
				if err != nil {
					return err
				}
				text, err := certificate.Fingerprint()
				if err == nil {
					_, err = fmt.Println(text)
				}
				return err
			},
		},
		{
			Name:    "host-key",
			Summary: "print the SSH host key, for ssh.public_key of the file server; create a key if there is none",
			Run: func(context.Context) error {
				key, err := agent.LoadOrCreateHostKey(c.hostKeyFile())
				if err == nil {
					_, err = fmt.Print(string(ssh.MarshalAuthorizedKey(key.PublicKey())))
				}
				return err
			},
		},
	}}.Main()
}

// loadCertificate returns the configured certificate or the agent's own.
func (c *config) loadCertificate() (*agent.Certificate, error) {
	if (c.Certificate == "") != (c.CertificateKey == "") {
		return nil, errors.New("set both IRONPLANE_AGENT_CERTIFICATE and IRONPLANE_AGENT_CERTIFICATE_KEY, or neither")
	}
	if c.Certificate != "" {
		return agent.OpenCertificate(c.Certificate, c.CertificateKey)
	}
	return agent.LoadOrCreateCertificate(c.certificateFile())
}

// certificateFile returns the file of the certificate that the agent creates.
func (c *config) certificateFile() string { return filepath.Join(c.Folder, "certificate") }

// hostKeyFile returns the file of the SSH host key.
func (c *config) hostKeyFile() string { return filepath.Join(c.Folder, "ssh-host-key") }

// serve runs the agent until ctx ends.
func (c *config) serve(ctx context.Context) error {
	operations := process.NewOperations("site-agent")
	return operations.Run(ctx, c.OperationsConfig, c.LogConfig, func(ctx context.Context, log *slog.Logger) error {
		files, err := tree.Open(c.Folder)
		if err != nil {
			return fmt.Errorf("IRONPLANE_AGENT_FOLDER: %w", err)
		}
		settings, err := c.machineSettings()
		if err != nil {
			return errors.Join(err, files.Close())
		}
		a, err := agent.New(files, c.Key, settings, process.Version(), log)
		if err != nil {
			return errors.Join(err, files.Close())
		}
		return errors.Join(c.serveAll(ctx, a, files, operations, log), a.Close(), files.Close())
	})
}

// serveAll runs all configured servers until ctx ends or one of them fails.
func (c *config) serveAll(ctx context.Context, a *agent.Agent, files *tree.Tree, operations *process.Operations, log *slog.Logger) error {
	operations.MustRegister(a.Refusals())
	listener, err := a.Listen(c.Listen)
	if err != nil {
		return fmt.Errorf("IRONPLANE_LISTEN: %w", err)
	}
	if !c.Plain {
		certificate, err := c.loadCertificate()
		if err != nil {
			return errors.Join(err, listener.Close())
		}
		listener = tls.NewListener(listener, certificate.TLSConfig())
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var working sync.WaitGroup
	defer working.Wait()
	run := func(do func() error) {
		working.Go(func() {
			if err := do(); err != nil {
				cancel(err)
			}
		})
	}
	working.Go(func() { cancel(a.Run(ctx)) })
	if c.Machines != "" {
		machines, err := a.ListenMachines(c.Machines)
		if err != nil {
			cancel(err)
			return errors.Join(fmt.Errorf("IRONPLANE_AGENT_MACHINES_LISTEN: %w", err), listener.Close())
		}
		run(func() error { return process.Serve(ctx, machines, a.MachineHandler(), log) })
	}
	if c.IPv6.IsValid() {
		addrPort, err := c.ipv6Address(c.Machines)
		if err != nil {
			cancel(err)
			return errors.Join(err, listener.Close())
		}
		machines, err := a.ListenMachines(addrPort.String())
		if err != nil {
			cancel(err)
			return errors.Join(fmt.Errorf("IRONPLANE_AGENT_DHCP_IPV6: %w", err), listener.Close())
		}
		run(func() error { return process.Serve(ctx, machines, a.MachineHandler(), log) })
	}
	if err := c.serveSFTP(ctx, a, run); err != nil {
		cancel(err)
		return errors.Join(err, listener.Close())
	}
	if err := c.serveBoot(ctx, a, files, log, run); err != nil {
		cancel(err)
		return errors.Join(err, listener.Close())
	}
	checks := c.readyChecks()
	operations.Check(checks...)
	working.Go(func() { reportProblems(ctx, a, checks) })
	err = operations.Serve(ctx, listener, a.Handler(), func() {})
	cancel(err)
	working.Wait()
	if cause := context.Cause(ctx); err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return err
}

// serveSFTP starts the SFTP server if it is configured.
func (c *config) serveSFTP(ctx context.Context, a *agent.Agent, run func(func() error)) error {
	if c.SSH == "" {
		return nil
	}
	key, err := agent.LoadOrCreateHostKey(c.hostKeyFile())
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", c.SSH)
	if err != nil {
		return fmt.Errorf("IRONPLANE_AGENT_SSH_LISTEN: %w", err)
	}
	run(func() error {
		return a.ServeSFTP(ctx, listener, agent.SFTPConfig{HostKey: key, AuthorizedKeys: c.AuthorizedKeys})
	})
	return nil
}

// checks returns the checks of the command check.
func (c *config) checks() []health.Check {
	checks := []health.Check{
		{Name: "IRONPLANE_AGENT_FOLDER: the folder exists, is writable, and no other agent uses it", Ask: func(context.Context) error {
			if c.Folder == "" {
				return errors.New("not set")
			}
			return tree.Check(c.Folder)
		}},
		{Name: "IRONPLANE_AGENT_FOLDER: a tenth of the disk is free", Optional: true, Ask: func(context.Context) error {
			free, total, err := tree.Space(c.Folder)
			if err == nil && free < total/10 {
				err = fmt.Errorf("only %d of %d bytes are free", free, total)
			}
			return err
		}},
		{Name: "IRONPLANE_AGENT_KEY: the key is long enough", Ask: func(context.Context) error { return agent.CheckKey(c.Key) }},
		process.CheckListen("IRONPLANE_LISTEN", c.Listen),
	}
	if !c.Plain {
		checks = append(
			checks,
			health.Check{Name: "the certificate is readable, or will be created at the first start", Ask: func(context.Context) error {
				if _, err := os.Stat(c.certificateFile()); c.Certificate == "" && errors.Is(err, fs.ErrNotExist) {
					return nil
				}
				_, err := c.loadCertificate()
				return err
			}},
		)
	}
	if c.SSH != "" {
		checks = append(checks, process.CheckListen("IRONPLANE_AGENT_SSH_LISTEN", c.SSH),
			health.Check{Name: "IRONPLANE_AGENT_SSH_KEYS: the keys are readable", Ask: func(context.Context) error {
				_, err := agent.ReadAuthorizedKeys(c.AuthorizedKeys)
				return err
			}})
	}
	if c.Machines != "" {
		checks = append(checks, process.CheckListen("IRONPLANE_AGENT_MACHINES_LISTEN", c.Machines),
			health.Check{Name: "IRONPLANE_AGENT_MACHINES_URL: the URL is valid", Ask: func(context.Context) error {
				_, err := c.machineSettings()
				return err
			}})
	}
	checks = append(checks, c.bootChecks()...)
	return append(checks, c.OperationsConfig.Checks()...)
}
