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

// testMesh is an authority, and the identities of the two processes that most tests need.
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

// serve serves a service's process and returns its address.
func (i *testMesh) serve(id *mtls.Identity, handler http.Handler) string {
	i.t.Helper()
	server := httptest.NewUnstartedServer(mtls.Receive(handler, i.log))
	server.Listener = id.Listener(server.Listener)
	server.Config.ErrorLog = slog.NewLogLogger(i.log.Handler(), slog.LevelDebug)
	server.Start()
	i.t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// serveRaw serves a service's process below HTTP: talk gets each connection.
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

// caller is the call that the tests' gateway puts into each request.
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

// serveGateway serves a gateway's process that has only the upstream, and returns its URL.
func (i *testMesh) serveGateway(upstream http.Handler) string {
	i.t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		upstream.ServeHTTP(w, r.WithContext(principal.NewContext(r.Context(), caller)))
	}))
	server.Config.ErrorLog = slog.NewLogLogger(i.log.Handler(), slog.LevelDebug)
	i.t.Cleanup(server.Close)
	return server.URL
}

// serveThrough returns the URL of a gateway in front of a service with this handler.
func (i *testMesh) serveThrough(handler http.HandlerFunc) string {
	i.t.Helper()
	return i.serveGateway(New(i.gateway, "network", []string{i.serve(i.network, handler)}, i.log))
}

// describeCall responds with the request's call.
func describeCall(w http.ResponseWriter, r *http.Request) {
	call := principal.FromContext(r.Context())
	_, _ = io.WriteString(w, call.Peer+"|"+string(peers.AppendCall(nil, call))+"|"+r.Header.Get(peers.CallHeader))
}
