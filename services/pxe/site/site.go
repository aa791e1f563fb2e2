// Package site is how the service calls the agents at the sites, and what it knows of how they are.
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

// Kind is what a server is, for which an agent stands: the path of its collection without the first slash.
type Kind string

// The kinds.
const (
	DHCPServer Kind = "pxe/dhcp"
	FileServer Kind = "pxe/file"
)

var tables = map[Kind]string{DHCPServer: "dhcp_server", FileServer: "file_server"}

// bySFTP are, of each kind, where files are moved by SFTP, and whether they are.
var bySFTP = map[Kind]string{DHCPServer: "0, '', false", FileServer: "ssh_port, ssh_public_key, ssh_use_sftp"}

// Agents are those at the sites.
type Agents struct {
	DB      *pg.DB
	Box     *seal.Box
	Allowed egress.Networks // of one's own, where they may be
	// Hear takes, once each and in their order, what the agent of a DHCP server has to say, in the unit of work that notes it.
	Hear func(ctx context.Context, tx *pg.Tx, dhcpServer int64, entries []siteagent.Entry) error
	// Heard takes that the agent of a DHCP server was listened to, up to all that it had to say at a moment.
	Heard func(ctx context.Context, tx *pg.Tx, dhcpServer int64, at time.Time) error
	// Push has the agent of a DHCP server know what its machines are to do.
	Push func(ctx context.Context, agent *siteagent.Client, dhcpServer int64) error
	// Woken has a value when there may be agents or installs that there were not before; nil: they are looked for now and then.
	Woken <-chan struct{}
}

// Agent is one of them.
type Agent struct {
	Name string // of its server
	*siteagent.Client
	Fingerprint string
	SFTP        *siteagent.SFTPEndpoint // nil: files are moved by HTTP
}

// Agent is the one of a server; pgx.ErrNoRows: there is no such server. Its connections are closed by Close.
func (a *Agents) Agent(ctx context.Context, kind Kind, id int64) (*Agent, error) {
	var host, name, fingerprint string
	var port *int32
	var encrypted, useSFTP bool
	var sshPort int32
	var hostKey string
	var sealed []byte
	err := a.DB.QueryRow(
		ctx,
		"SELECT name, http_host, http_port, http_use_https, http_api_key, coalesce(http_fingerprint, ''), "+
			bySFTP[kind]+" FROM "+tables[kind]+" WHERE id = $1",
		id,
	).
		Scan(&name, &host, &port, &encrypted, &sealed, &fingerprint, &sshPort, &hostKey, &useSFTP)
	if err != nil {
		return nil, fmt.Errorf("read where %s %d is: %w", kind, id, err)
	}
	var key secret.String
	if sealed != nil {
		if key, err = a.Box.Open(seal.Place{Table: tables[kind], Column: "http_api_key", ID: id}, sealed); err != nil {
			return nil, err
		}
	}
	config, err := siteagent.PinnedTLSConfig(fingerprint)
	if err != nil {
		return nil, err
	}
	asking := a.Allowed.ClientTrusting(config)
	agent := &Agent{
		Name:        name,
		Client:      &siteagent.Client{URL: address(host, port, encrypted), Key: key, HTTP: asking},
		Fingerprint: fingerprint,
	}
	if useSFTP {
		agent.SFTP = &siteagent.SFTPEndpoint{Address: net.JoinHostPort(host, strconv.Itoa(int(sshPort))), HostKey: hostKey}
	}
	return agent, nil
}

// Close ends its connections.
func (a *Agent) Close() { a.HTTP.CloseIdleConnections() }

func address(host string, port *int32, encrypted bool) string {
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

// Reason is what an operator is told of a request that failed.
func Reason(err error) string {
	for _, other := range []error{siteagent.ErrFingerprint, siteagent.ErrHostKey} {
		if errors.Is(err, other) {
			return other.Error()
		}
	}
	if refused, ok := errors.AsType[*siteagent.Refusal](err); ok {
		return refused.Detail
	}
	return egress.Reason(err)
}

// gone tells whether a server was deleted.
func gone(err error) bool { return errors.Is(err, pgx.ErrNoRows) }
