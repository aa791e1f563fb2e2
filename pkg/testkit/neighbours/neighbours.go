package neighbours

import (
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// options are shared by the doubles and the service under test.
type options struct {
	redis     *cache.Client
	masterKey secret.String
	names     []string // of all services
}

// All are the doubles of all services. The double of the service under test is unused.
type All struct {
	Identity *Identity
	Clients  *Clients
	Network  *Network
	PXE      *PXE
	System   *System
}

func newAll(t testing.TB, o options) *All {
	o.names = []string{"identity", "clients", "network", "pxe", "system"}
	return &All{newIdentity(t, o), newClients(t, o), newNetwork(t, o), newPXE(t, o), newSystem(t, o)}
}

func (a *All) doubles() map[string]*Double {
	return map[string]*Double{
		"identity": a.Identity.Double, "clients": a.Clients.Double, "network": a.Network.Double, "pxe": a.PXE.Double, "system": a.System.Double,
	}
}

// Run runs a service with doubles as its neighbours. Neighbours in o replace doubles.
func Run(t testing.TB, d service.Definition, o testkit.ServiceOptions) (*testkit.RunningService, *All) {
	t.Helper()
	if o.Redis == nil {
		o.Redis = testkit.Redis(t)
	}
	if o.MasterKey.IsZero() {
		o.MasterKey = seal.NewMasterKey()
	}
	all := newAll(t, options{redis: o.Redis, masterKey: o.MasterKey})
	handlers := map[string]http.Handler{}
	for name, double := range all.doubles() {
		handlers[name] = double
	}
	maps.Copy(handlers, o.Neighbours)
	o.Neighbours = handlers
	s := testkit.Run(t, d, o)
	for name, double := range all.doubles() {
		if slices.Contains(d.Sends, name) {
			double.mu.Lock()
			double.tested = s.Handler()
			double.mu.Unlock()
		}
	}
	return s, all
}
