// Package site calls the agents at the sites, and stores their health.
package site

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ironplane/ironplane/pkg/egress"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/services/pxe/siteagent"
)

// Kind is the kind of server that an agent serves: the path of its collection without the first slash.
type Kind string

// The kinds of servers.
const (
	DHCPServer Kind = "pxe/dhcp"
	FileServer Kind = "pxe/file"
)

var tables = map[Kind]string{DHCPServer: "dhcp_server", FileServer: "file_server"}

// sftpColumns are SQL expressions for the SFTP port, the host key and whether SFTP is used, by the kind of server.
var sftpColumns = map[Kind]string{DHCPServer: "0, '', false", FileServer: "ssh_port, ssh_public_key, ssh_use_sftp"}

// Agents opens connections to the agents at the sites and polls them.
type Agents struct {
	DB      *pg.DB
	Box     *seal.Box
	Allowed egress.Networks // private networks in which agents may be
	// ApplyReports applies the feed of a DHCP server's agent. It is called once for each entry, in order, in the unit of
	// work that stores the position in the feed.
	ApplyReports func(ctx context.Context, tx *pg.Tx, dhcpServer int64, entries []siteagent.Entry) error
	// FreeRevokedSlots is called when all entries that an agent had at the time at were applied.
	FreeRevokedSlots func(ctx context.Context, tx *pg.Tx, dhcpServer int64, at time.Time) error
	// PushMachines sends the agent of a DHCP server what its machines are to do.
	PushMachines func(ctx context.Context, agent *siteagent.Client, dhcpServer int64) error
	// Woken receives a value when there may be new agents or installs. If it is nil, they are found by polling.
	Woken <-chan struct{}
}

// Agent is a client of one agent.
type Agent struct {
	Name string // the server's name
	*siteagent.Client
	Fingerprint string
	SFTP        *siteagent.SFTPEndpoint // nil: files are moved by HTTP
}

// Open returns a client of a server's agent, which the caller must Close. It fails with pgx.ErrNoRows if the server does
// not exist.
func (a *Agents) Open(ctx context.Context, kind Kind, id int64) (*Agent, error) {
	var host, name, fingerprint string
	var port *int32
	var encrypted, useSFTP bool
	var sshPort int32
	var hostKey string
	var sealed []byte
	err := a.DB.QueryRow(
		ctx,
		"SELECT name, http_host, http_port, http_use_https, http_api_key, coalesce(http_fingerprint, ''), "+
			sftpColumns[kind]+" FROM "+tables[kind]+" WHERE id = $1",
		id,
	).
		Scan(&name, &host, &port, &encrypted, &sealed, &fingerprint, &sshPort, &hostKey, &useSFTP)
	if err != nil {
		return nil, fmt.Errorf("read the address of %s %d: %w", kind, id, err)
	}
	var key secret.String
	if sealed != nil {
		if key, err = a.Box.Open(seal.Location{Table: tables[kind], Column: "http_api_key", ID: id}, sealed); err != nil {
			return nil, err
		}
	}
	config, err := siteagent.PinnedTLSConfig(fingerprint)
	if err != nil {
		return nil, err
	}
	client := a.Allowed.ClientTrusting(config)
	agent := &Agent{
		Name:        name,
		Client:      &siteagent.Client{URL: buildURL(host, port, encrypted), Key: key, HTTP: client},
		Fingerprint: fingerprint,
	}
	if useSFTP {
		agent.SFTP = &siteagent.SFTPEndpoint{Address: net.JoinHostPort(host, strconv.Itoa(int(sshPort))), HostKey: hostKey}
	}
	return agent, nil
}

// Close closes the idle connections to the agent.
func (a *Agent) Close() { a.HTTP.CloseIdleConnections() }

// buildURL returns the base URL of an agent.
func buildURL(host string, port *int32, encrypted bool) string {
	scheme := "http"
	if encrypted {
		scheme = "https"
	}
	if port != nil {
		return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(int(*port)))
	}
	if ip := net.ParseIP(host); ip != nil && ip.To4() == nil {
		host = "[" + host + "]"
	}
	return scheme + "://" + host
}

// DescribeError describes to operators why a call to an agent failed, without details of the network.
func DescribeError(err error) string {
	for _, other := range []error{siteagent.ErrFingerprint, siteagent.ErrHostKey} {
		if errors.Is(err, other) {
			return other.Error()
		}
	}
	if refused, ok := errors.AsType[*siteagent.Refusal](err); ok {
		return refused.Detail
	}
	return egress.Describe(err)
}

// isNotFound reports whether a row was not found, such as that of a deleted server.
func isNotFound(err error) bool { return errors.Is(err, pgx.ErrNoRows) }
