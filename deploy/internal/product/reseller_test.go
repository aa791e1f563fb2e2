package product_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity/keys"
)

// actAs begins a session in which the caller acts for a client.
func actAs(t *testing.T, by *testkit.Client, id int64) *testkit.Client {
	t.Helper()
	body := map[string]any{"owner": map[string]any{"url": path("/client/%d", id)}}
	return by.WithKey(testkit.Decode[keys.APIKey](by.Do("POST", "/auth/key", body).Want(200)).Key)
}

// wantRefused waits until a key is refused.
func wantRefused(t *testing.T, c *testkit.Client, label string) {
	t.Helper()
	testkit.Eventually(t, label+" is refused", func() bool { return c.Do("GET", "/auth/key/current", nil).Status == http.StatusUnauthorized })
}

// wantAccepted waits until a key works.
func wantAccepted(t *testing.T, c *testkit.Client, label string) {
	t.Helper()
	testkit.Eventually(t, label+" is accepted", func() bool { return c.Do("GET", "/auth/key/current", nil).Status == http.StatusOK })
}

// A reseller signs in as its sub clients. The session ends with the link, with the reseller's key, and with a suspension of either.
func TestResellerActs(t *testing.T) {
	shared(t, func(t *testing.T, _ *product.Product, c *testkit.Client) {
		top := c.Do("POST", "/client", order("acts-top@example.com")).Want(200).ID()
		above := c.WithKey(lastingKeyOf(t, c, top))
		sub := above.Do("POST", "/client", order("acts-sub@example.com")).Want(200).ID()
		below := c.WithKey(lastingKeyOf(t, c, sub)) // the sub client's own
		leaf := below.Do("POST", "/client", order("acts-leaf@example.com")).Want(200).ID()
		leafKey := c.WithKey(lastingKeyOf(t, c, leaf))

		// It works for sub clients at any depth, and writes nothing that would outlive it.
		acting := actAs(t, above, leaf)
		if got := acting.Do("GET", path("/client/%d", leaf), nil).Want(200).ID(); got != leaf {
			t.Errorf("got client %d, want %d", got, leaf)
		}
		acting.Do("POST", "/auth/key", `{"name": "mine"}`).Want(403)
		acting.Do("PATCH", path("/client/%d", leaf), `{"email": "mine@example.com"}`).Want(403)
		deeper := actAs(t, above, sub)
		deeper.Do("POST", "/auth/key", map[string]any{"owner": map[string]any{"url": path("/client/%d", leaf)}}).Want(403)

		// A suspension of the reseller ends its sessions and those of all below it, and nothing else.
		c.Do("POST", path("/client/%d/suspend", top), nil).Want(200)
		all := map[string]*testkit.Client{
			"the reseller's key": above, "its session": acting, "the sub client's key": below, "the leaf's key": leafKey,
		}
		for label, key := range all {
			wantRefused(t, key, label)
		}
		c.Do("POST", path("/client/%d/unsuspend", top), nil).Want(200)
		for label, key := range all {
			wantAccepted(t, key, label)
		}
		above.Do("POST", path("/client/%d/suspend", sub), nil).Want(200)
		wantRefused(t, leafKey, "the key of the leaf of a suspended sub client")
		wantAccepted(t, above, "the reseller's key")
		above.Do("POST", path("/client/%d/unsuspend", sub), nil).Want(200)
		wantAccepted(t, leafKey, "the leaf's key")

		// The end of the link ends the sessions at once.
		links := testkit.Decode[[]struct{ ID int64 }](below.Do("GET", path("/client/%d/parent", sub), nil).Want(200))
		below.Do("DELETE", path("/client/%d/parent/%d", sub, links[0].ID), nil).Want(200)
		ended := time.Now()
		for label, key := range map[string]*testkit.Client{"the session for the sub client": deeper, "the session for the leaf": acting} {
			wantRefused(t, key, label)
		}
		t.Logf("refused %s after the link's end was answered", time.Since(ended).Round(time.Millisecond))
		wantAccepted(t, leafKey, "the leaf's own key")
		above.Do("POST", "/auth/key", map[string]any{"owner": map[string]any{"url": path("/client/%d", sub)}}).Want(403)

		// A known address gives nothing.
		above.Do("POST", "/client", order("acts-sub@example.com")).Want(200)
		above.Do("POST", "/auth/key", map[string]any{"owner": map[string]any{"url": path("/client/%d", sub)}}).Want(403)
		above.Do("GET", path("/auth/sso?owner=/client/%d", sub), nil).Want(403)
		above.Do("POST", path("/client/%d/suspend", sub), nil).Want(403)
	})
}

// lastingKeyOf returns a lasting key of a client.
func lastingKeyOf(t *testing.T, c *testkit.Client, id int64) string {
	t.Helper()
	body := map[string]any{"name": "own", "owner": map[string]any{"url": path("/client/%d", id)}}
	return testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", body).Want(200)).Key
}
