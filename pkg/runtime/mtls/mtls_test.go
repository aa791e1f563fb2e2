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

// install is an authority and the two processes that most tests are about.
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

// serve is a service's process. The answer is its address.
func (i *install) serve(id *Identity, handler http.Handler) string {
	i.t.Helper()
	server := httptest.NewUnstartedServer(Receive(handler, i.log))
	server.Listener = id.Listener(server.Listener)
	server.Config.ErrorLog = slog.NewLogLogger(i.log.Handler(), slog.LevelDebug)
	server.Start()
	i.t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// caller is whom the tests' gateway finds to be calling.
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

// testTimeout is how long anything may take, on a machine that does much else, too.
const testTimeout = 2 * time.Minute

// peers are the other services as the process of this identity asks them, where network is at these addresses.
func (i *install) peers(id *Identity, addresses ...string) *peers.Peers {
	p := id.NewPeers(nil)
	p.SetInstances("network", addresses)
	return p
}

// connect is a connection to a process that is network.
func (i *install) connect(address string) (*tls.Conn, error) {
	i.t.Helper()
	return tls.DialWithDialer(&net.Dialer{Timeout: testTimeout}, "tcp", address, i.gateway.ClientConfig("network"))
}
