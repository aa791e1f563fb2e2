package proxy

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/runtime/mtls"
	"github.com/ironplane/ironplane/pkg/runtime/peers"
)

// testMesh is an authority and the two processes that most tests are about.
type testMesh struct {
	t         testing.TB
	authority *mtls.Authority
	gateway   *mtls.Identity
	network   *mtls.Identity
	log       *slog.Logger
}

func newTestMesh(t testing.TB) *testMesh {
	t.Helper()
	i := &testMesh{t: t, authority: newAuthority(t), log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	i.gateway, i.network = i.identity(principal.Gateway), i.identity("network")
	return i
}

func newAuthority(t testing.TB) *mtls.Authority {
	t.Helper()
	a, err := mtls.NewAuthority(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (i *testMesh) identity(name string) *mtls.Identity {
	i.t.Helper()
	id, err := i.authority.Identity(name)
	if err != nil {
		i.t.Fatal(err)
	}
	return id
}

// serve is a service's process. The answer is its address.
func (i *testMesh) serve(id *mtls.Identity, handler http.Handler) string {
	i.t.Helper()
	server := httptest.NewUnstartedServer(mtls.Receive(handler, i.log))
	server.Listener = id.Listener(server.Listener)
	server.Config.ErrorLog = slog.NewLogLogger(i.log.Handler(), slog.LevelDebug)
	server.Start()
	i.t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// serveRaw is a service's process that speaks for itself, below HTTP.
func (i *testMesh) serveRaw(id *mtls.Identity, talk func(net.Conn)) string {
	i.t.Helper()
	plain, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		i.t.Fatal(err)
	}
	l := id.Listener(plain)
	i.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				talk(c)
			}()
		}
	}()
	return l.Addr().String()
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

// serveGateway is a gateway's process with nothing in it but the upstream. The answer is its URL.
func (i *testMesh) serveGateway(upstream http.Handler) string {
	i.t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		upstream.ServeHTTP(w, r.WithContext(principal.With(r.Context(), caller)))
	}))
	server.Config.ErrorLog = slog.NewLogLogger(i.log.Handler(), slog.LevelDebug)
	i.t.Cleanup(server.Close)
	return server.URL
}

// serveThrough is the URL of a gateway in front of a service with this handler.
func (i *testMesh) serveThrough(handler http.HandlerFunc) string {
	i.t.Helper()
	return i.serveGateway(New(i.gateway, "network", []string{i.serve(i.network, handler)}, i.log))
}

// describeCall answers with what is known of the request.
func describeCall(w http.ResponseWriter, r *http.Request) {
	call := principal.From(r.Context())
	_, _ = io.WriteString(w, call.Peer+"|"+string(peers.AppendCall(nil, call))+"|"+r.Header.Get(peers.CallHeader))
}
