package product_test

import (
	"net/http"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/keys"
)

// Identity checks the calling key again, because it may have ended since the gateway looked it up.
func TestIdentityChecksTheCallingKey(t *testing.T) {
	both(t, testIdentityChecksTheCallingKey)
}

func testIdentityChecksTheCallingKey(t *testing.T, p *product.Product, c *testkit.Client) {
	w := newWalk(t, p, c)
	w.createOneOfEach()
	id, own := newAdmin(t, c, "few", `{}`)
	expired := testkit.Decode[keys.APIKey](own.Do("GET", "/auth/key/current", nil).Want(200)).ID
	testkit.Execute(t, p.Databases[identity.Name], path("UPDATE api_key SET expires_at = now() - interval '1 second' WHERE id = %d", expired))
	tried := 0
	for _, caller := range []*principal.Principal{
		{KeyID: 999, Owner: principal.Owner{Type: principal.Admin, ID: 1}, Grants: principal.All},      // deleted
		{KeyID: expired, Owner: principal.Owner{Type: principal.Admin, ID: id}, Grants: principal.All}, // expired
		{KeyID: 1, Owner: principal.Owner{Type: principal.Admin, ID: id}, Grants: principal.All},       // moved to another owner
	} {
		stale := testkit.NewClient(t, testkit.As(p.Services[identity.Name], caller))
		for _, o := range rest.Operations(p.Routes[identity.Name]) {
			if !guard.IsInternal(o.Guard) && o.Guard != guard.Public && o.Method != http.MethodGet {
				tried++
				stale.Do(o.Method, w.item(o.Path), o.Example).Want(401)
			}
		}
	}
	if tried < 3*7 {
		t.Errorf("got %d tries, want at least %d", tried, 3*7)
	}
}
