package producttest

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/gateway"
	"github.com/ironplane/ironplane/gateway/proxy"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/runtime/mtls"
	"github.com/ironplane/ironplane/pkg/runtime/process"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// InOneProcess runs a test with a product in one process. It is for tests that do not depend on how the gateway reaches services.
func InOneProcess(t *testing.T, test func(*testing.T, *product.Product, *testkit.Client)) {
	t.Parallel()
	p, c := Start(t)
	test(t, p, c)
}

// Split is Start with a gateway that reaches the services over mTLS, as it reaches other processes.
func Split(t testing.TB) (*product.Product, *testkit.Client) {
	t.Helper()
	client := testkit.Redis(t)
	p := open(t, client, service.Settings{})
	p.Gateway.Close()
	p.Gateway = NewMesh(t, p, p.Services, Log(t)).Gateway(gateway.Config{}, client)
	return p, FirstAdmin(t, p)
}

// Mesh serves the services over mTLS, as processes of their own do.
type Mesh struct {
	Addresses process.Addresses
	t         testing.TB
	product   *product.Product
	authority *mtls.Authority
	log       *slog.Logger
}

// NewMesh serves these handlers of the product's services. The keys of services are their names.
func NewMesh(t testing.TB, p *product.Product, services map[string]http.Handler, log *slog.Logger) *Mesh {
	t.Helper()
	authority, err := mtls.NewAuthority(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	m := &Mesh{process.Addresses{}, t, p, authority, log}
	for name, service := range services {
		server := httptest.NewUnstartedServer(mtls.Receive(service, log))
		server.Listener = m.identity(name).Listener(server.Listener)
		server.Config.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
		server.Start()
		t.Cleanup(server.Close)
		m.Addresses[name] = []string{server.Listener.Addr().String()}
	}
	return m
}

// Gateway returns another gateway in front of the services.
func (m *Mesh) Gateway(config gateway.Config, client *cache.Client) *gateway.Gateway {
	m.t.Helper()
	id := m.identity(principal.Gateway)
	upstreams, peers := map[string]http.Handler{}, id.NewPeers(nil)
	peers.MinTimeout = testkit.Tune(service.Tuning{}).MinTimeout
	for name, addresses := range m.Addresses {
		upstreams[name] = proxy.New(id, name, addresses, m.log)
		peers.SetInstances(name, addresses)
	}
	g := m.product.NewGateway(config, upstreams, peers, client, m.log)
	m.t.Cleanup(g.Close)
	return g
}

func (m *Mesh) identity(name string) *mtls.Identity {
	m.t.Helper()
	id, err := m.authority.Identity(name)
	if err != nil {
		m.t.Fatal(err)
	}
	return id
}
