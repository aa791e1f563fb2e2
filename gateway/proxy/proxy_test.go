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

// install is an authority and the two processes that most tests are about.
type install struct {
	t         testing.TB
	authority *mtls.Authority
	gateway   *mtls.Identity
	network   *mtls.Identity
	log       *slog.Logger
}

func newInstall(t testing.TB) *install {
	t.Helper()
	i := &install{t: t, authority: newAuthority(t), log: slog.New(slog.NewTextHandler(t.Output(), nil))}
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

func (i *install) identity(name string) *mtls.Identity {
	i.t.Helper()
	id, err := i.authority.Identity(name)
	if err != nil {
		i.t.Fatal(err)
	}
	return id
}

// serve is a service's process. The answer is its address.
func (i *install) serve(id *mtls.Identity, handler http.Handler) string {
	i.t.Helper()
	server := httptest.NewUnstartedServer(mtls.Receive(handler, i.log))
	server.Listener = id.Listener(server.Listener)
	server.Config.ErrorLog = slog.NewLogLogger(i.log.Handler(), slog.LevelDebug)
	server.Start()
	i.t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// listen is a service's process that speaks for itself, below HTTP.
func (i *install) listen(id *mtls.Identity, talk func(net.Conn)) string {
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

// front is a gateway's process with nothing in it but the upstream. The answer is its URL.
func (i *install) front(upstream http.Handler) string {
	i.t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		upstream.ServeHTTP(w, r.WithContext(principal.With(r.Context(), caller)))
	}))
	server.Config.ErrorLog = slog.NewLogLogger(i.log.Handler(), slog.LevelDebug)
	i.t.Cleanup(server.Close)
	return server.URL
}

// through is the URL of a gateway in front of a service with this handler.
func (i *install) through(handler http.HandlerFunc) string {
	i.t.Helper()
	return i.front(New(i.gateway, "network", []string{i.serve(i.network, handler)}, i.log))
}

// say answers with what is known of the request.
func say(w http.ResponseWriter, r *http.Request) {
	call := principal.From(r.Context())
	_, _ = io.WriteString(w, call.Peer+"|"+string(peers.AppendCall(nil, call))+"|"+r.Header.Get(peers.CallHeader))
}
