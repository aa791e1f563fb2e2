package product_test

import (
	"net/http"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity/keys"
)

// When a client moves to another integration, the sessions in which the earlier one acted for it are refused. So are the keys that
// the earlier one made for it, and what was made with these. The client's own keys go on.
func TestMovedClient(t *testing.T) {
	shared(t, func(t *testing.T, _ *product.Product, c *testkit.Client) {
		const rights = `{"users": {"clients": {"read": true, "write": true}}}`
		_, before := newIntegration(t, c, "Before", rights)
		next, after := newIntegration(t, c, "After", rights)
		client := before.Do("POST", "/client", order("moves@example.com")).Want(200).ID()
		sub := before.Do("POST", "/client", order("moves-sub@example.com")).Want(200).ID()
		before.Do("POST", path("/client/%d/sub", client), map[string]any{"client_id": sub}).Want(200)
		remade := map[string]any{"name": "remade", "key": apikey.New().Reveal()}

		acting := actAs(t, before, client)
		lasting := before.WithKey(lastingKeyOf(t, before, client))
		inherited := before.WithKey(testkit.Decode[keys.APIKey](lasting.Do("POST", "/auth/key", `{"name": "made with it"}`).Want(200)).Key)
		ofSub := actAs(t, lasting, sub) // by the key of the client, which integration "Before" made
		own := c.WithKey(lastingKeyOf(t, c, client))
		ownOfSub := actAs(t, own, sub)
		ended := map[string]*testkit.Client{
			"the integration's session": acting, "the key that it made": lasting, "a key made with that key": inherited,
			"a session for the sub client, made with that key": ofSub,
		}
		for label, key := range ended {
			wantAccepted(t, key, label)
		}

		c.Do("POST", path("/client/%d/adopt", client), map[string]any{"billing_id": 7001, "integration": map[string]any{"id": next}}).Want(200)
		for label, key := range ended {
			wantRefused(t, key, label)
		}
		wantAccepted(t, own, "the client's own key")
		wantAccepted(t, ownOfSub, "the session for the sub client, made with the client's own key")
		testkit.Eventually(t, "the next integration can act for the client", func() bool { // identity has heard of the move
			body := map[string]any{"owner": map[string]any{"url": path("/client/%d", client)}}
			return after.Do("POST", "/auth/key", body).Status == http.StatusOK
		})
		before.Do("POST", "/auth/key", map[string]any{"owner": map[string]any{"url": path("/client/%d", client)}}).Want(403)

		// A key depends on no integration any more when somebody else gives it a new value.
		id := testkit.Decode[[]keys.APIKey](own.Do("GET", "/auth/key?name=made+with+it", nil).Want(200))[0].ID
		c.Do("PATCH", path("/auth/key/%d", id), remade).Want(200)
		wantAccepted(t, c.WithKey(remade["key"].(string)), "the key with another value")

		// A deleted integration has no clients.
		last := after.WithKey(lastingKeyOf(t, after, client))
		wantAccepted(t, last, "the key that the next integration made")
		c.Do("DELETE", path("/integration/%d?detach=true", next), nil).Want(200)
		wantRefused(t, last, "the key that a deleted integration made")
		wantAccepted(t, own, "the client's own key")
	})
}
