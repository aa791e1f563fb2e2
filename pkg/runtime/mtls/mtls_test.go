package mtls

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/runtime/peers"
)

// install is an authority with the two processes that most tests use.
type install struct {
	t         testing.TB
	authority *Authority
	gateway   *Identity
	network   *Identity
	log       *slog.Logger
}

func newInstall(t testing.TB) *install {
	t.Helper()
	i := &install{t: t, authority: newAuthority(t), log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	i.gateway, i.network = i.identity(principal.Gateway), i.identity("network")
	return i
}

func newAuthority(t testing.TB) *Authority {
	t.Helper()
	a, err := NewAuthority(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (i *install) identity(name string) *Identity {
	i.t.Helper()
	id, err := i.authority.Identity(name)
	if err != nil {
		i.t.Fatal(err)
	}
	return id
}

// serve starts a process that serves handler, and returns its address.
func (i *install) serve(id *Identity, handler http.Handler) string {
	i.t.Helper()
	server := httptest.NewUnstartedServer(Receive(handler, i.log))
	server.Listener = id.Listener(server.Listener)
	server.Config.ErrorLog = slog.NewLogLogger(i.log.Handler(), slog.LevelDebug)
	server.Start()
	i.t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// caller is the call that the tests' gateway forwards.
var caller = &principal.Call{
	Peer:      principal.Gateway,
	IP:        netip.MustParseAddr("192.0.2.7"),
	RequestID: "request-1",
	Principal: &principal.Principal{
		KeyID:  4,
		Owner:  principal.Owner{Type: principal.Admin, ID: 3},
		Name:   "Änna B",
		Grants: principal.Grant(permission.NetworkGroups, permission.Read),
	},
}

// testTimeout is generous, for busy machines.
const testTimeout = 2 * time.Minute

// peers returns the services as this identity reaches them, with network at these addresses.
func (i *install) peers(id *Identity, addresses ...string) *peers.Peers {
	p := id.NewPeers(nil)
	p.SetInstances("network", addresses)
	return p
}

// connect opens a connection to a process that must be network.
func (i *install) connect(address string) (*tls.Conn, error) {
	i.t.Helper()
	return tls.DialWithDialer(&net.Dialer{Timeout: testTimeout}, "tcp", address, i.gateway.ClientConfig("network"))
}
