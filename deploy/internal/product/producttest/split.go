package producttest

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/gateway"
	"github.com/ironplane/ironplane/pkg/mesh"
	"github.com/ironplane/ironplane/pkg/principal"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// Both runs a test on the product in one process and on the product split.
func Both(t *testing.T, test func(*testing.T, *product.Product, *testkit.Client)) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB) (*product.Product, *testkit.Client){"together": Start, "split": Split} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, c := start(t)
			test(t, p, c)
		})
	}
}

// Split is Start with a gateway that reaches the services as it does those in other processes: over mTLS.
func Split(t testing.TB) (*product.Product, *testkit.Client) {
	t.Helper()
	client := testkit.Redis(t)
	p := open(t, client)
	var err error
	if p.Gateway, err = gateway.New(Unlimited, overMesh(t, p.Services), client, log(t)); err != nil {
		t.Fatal(err)
	}
	return p, firstAdmin(t, p)
}

func overMesh(t testing.TB, services map[string]http.Handler) map[string]http.Handler {
	t.Helper()
	authority, err := mesh.NewAuthority(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	identity := func(name string) *mesh.Identity {
		id, err := authority.Identity(name)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	door := identity(principal.Gateway)
	upstreams := map[string]http.Handler{}
	for name, service := range services {
		server := httptest.NewUnstartedServer(mesh.Receive(service, log(t)))
		server.Listener = identity(name).Listener(server.Listener)
		server.Config.ErrorLog = slog.NewLogLogger(log(t).Handler(), slog.LevelDebug)
		server.Start()
		t.Cleanup(server.Close)
		upstreams[name] = door.NewUpstream(name, []string{server.Listener.Addr().String()}, log(t))
	}
	return upstreams
}
