package product_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/clients"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/system/integration"
	"github.com/ironplane/ironplane/services/system/mail"
)

const mayWriteClients = `{"users": {"clients": {"read": true, "write": true}}}`

// order returns the body that a billing system or a reseller sends for a customer.
func order(email string, more ...any) map[string]any {
	body := map[string]any{"email": email, "first": "Ben", "last": "Miller"}
	for i := 0; i < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	return body
}

// newClients creates clients with these names, and returns their ids, and a client with a key of each.
func newClients(t *testing.T, c *testkit.Client, names ...string) (ids map[string]int64, as map[string]*testkit.Client) {
	t.Helper()
	ids, as = map[string]int64{}, map[string]*testkit.Client{}
	for _, name := range names {
		ids[name] = c.Do("POST", "/client", order(name+"@example.com", "first", name)).Want(200).ID()
		as[name] = c.WithKey(keyOf(t, c, path("/client/%d", ids[name])))
	}
	return ids, as
}

// A client's key works until the client is deleted or disabled.
func TestClients(t *testing.T) { shared(t, testClients) }

func testClients(t *testing.T, _ *product.Product, c *testkit.Client) {
	created := testkit.Decode[clients.ViewedClient](c.Do("POST", "/client", order("benjamin@example.com", "first", "Benjamin")).Want(200))
	at := path("/client/%d", created.ID)
	own := c.WithKey(keyOf(t, c, at))
	if key := testkit.Decode[keys.APIKey](
		own.Do("GET", "/auth/key/current", nil).Want(200),
	); key.Owner.URL != at ||
		*key.Owner.Name != "Benjamin Miller" {
		t.Errorf("got the key %+v, want one of Benjamin Miller at %s", key, at)
	}
	own.Do("GET", at, nil).Want(200)
	own.Do("GET", "/group", nil).Want(403)
	for range 2 {
		c.Do("PATCH", at, disable).Want(200)
		becomes(t, own, at, 401)
		c.Do("PATCH", at, enable).Want(200)
		becomes(t, own, at, 200)
	}
	c.Do("DELETE", at, nil).Want(200)
	becomes(t, own, at, 401)
	testkit.Eventually(t, "its keys are deleted", func() bool { return c.Do("GET", "/auth/key?owner="+at, nil).Want(200).Text == "[]\n" })
	c.Do("POST", "/auth/key", map[string]any{"name": "late", "owner": map[string]any{"url": at}}).WantErrors("/owner/url", "not_found")
}

// An integration creates keys for its own clients, and cannot be deleted while it has clients.
func TestClientsOfIntegrations(t *testing.T) { shared(t, testClientsOfIntegrations) }

func testClientsOfIntegrations(t *testing.T, _ *product.Product, c *testkit.Client) {
	shopID, shop := newIntegration(t, c, "Corner shop", mayWriteClients)
	_, hub := newIntegration(t, c, "Corner hub", mayWriteClients)
	own, others := path("/client/%d", shop.Do("POST", "/client", order("corner-shop@example.com", "billing_id", 7)).Want(200).ID()),
		path("/client/%d", hub.Do("POST", "/client", order("corner-hub@example.com", "billing_id", 7)).Want(200).ID())
	free := path("/client/%d", c.Do("POST", "/client", order("corner-nobody@example.com")).Want(200).ID())
	shop.Do("PATCH", free, `{"billing_id": 8}`).Want(403)
	c.Do("POST", free+"/adopt", map[string]any{"billing_id": 8, "integration": shopID}).Want(200)
	testkit.Eventually(t, "the shop's clients are counted", func() bool {
		return testkit.Decode[integration.Integration](c.Do("GET", path("/integration/%d", shopID), nil).Want(200)).Clients == 2
	})
	key := func(account string) map[string]any {
		return map[string]any{"name": "session", "owner": map[string]any{"url": account}}
	}
	shop.Do("POST", "/auth/key", key(own)).Want(200)
	shop.Do("POST", "/auth/key", key(others)).WantDetail(http.StatusForbidden, "An integration can change only its own clients.")
	// An integration with clients cannot be deleted. Its new name reaches its clients.
	c.Do("DELETE", path("/integration/%d", shopID), nil).WantDetail(http.StatusConflict, fmt.Sprintf("Integration %d has 2 clients.", shopID))
	c.Do("PATCH", path("/integration/%d", shopID), `{"name": "Corner store"}`).Want(200)
	testkit.Eventually(
		t,
		"the client shows the new name",
		func() bool { return strings.Contains(c.Do("GET", own, nil).Want(200).Text, `"name":"Corner store"`) },
	)
	for _, account := range []string{own, free} {
		shop.Do("DELETE", account, nil).Want(200)
	}
	testkit.Eventually(
		t,
		"the integration can be deleted",
		func() bool { return c.Do("DELETE", path("/integration/%d", shopID), nil).Status == 200 },
	)
}

// mailsTo returns the templates, statuses and texts of the mails to an address, in their order. If without is set, it leaves out
// mails that contain it.
func mailsTo(t *testing.T, c *testkit.Client, address, without string) (templates string, text string) {
	t.Helper()
	all := testkit.Decode[[]mail.EmailMessage](c.Do("GET", "/email/message?email="+address, nil).Want(200))
	all = slices.DeleteFunc(all, func(m mail.EmailMessage) bool { return without != "" && strings.Contains(m.Text, without) })
	slices.SortFunc(all, func(a, b mail.EmailMessage) int { return int(a.ID - b.ID) })
	var names []string
	for _, m := range all {
		names, text = append(names, m.Template+" "+m.Status), text+m.Text
	}
	return strings.Join(names, ", "), text
}

// An account gets a mail about its keys and its changes, at most ten an hour.
func TestMailsToAClient(t *testing.T) { shared(t, testMailsToAClient) }

func testMailsToAClient(t *testing.T, _ *product.Product, c *testkit.Client) {
	at := path("/client/%d", c.Do("POST", "/client", order("mails@example.com", "password", "a long walk in the rain")).Want(200).ID())
	own := c.WithKey(keyOf(t, c, at))
	testkit.Eventually(t, "the mail about the key is sent", func() bool { // before the address changes
		_, text := mailsTo(t, c, "mails@example.com", "")
		return strings.Contains(text, "An API key was created")
	})
	own.Do("PATCH", at, `{"email": "moved@example.com", "current_password": "a long walk in the rain"}`).Want(200)
	testkit.Eventually(t, "mails are sent to both addresses", func() bool {
		old, text := mailsTo(t, c, "mails@example.com", "")
		now, moved := mailsTo(t, c, "moved@example.com", "")
		return old == "account-changed held, account-changed held" && now == "account-changed held" &&
			strings.Contains(text, "An API key was created") && strings.Contains(moved, "By: Ben Miller")
	})
	for n := range 12 {
		c.Do("PATCH", at, fmt.Sprintf(`{"verify": {"require": %v}}`, n%2 == 0)).Want(200)
	}
	testkit.Eventually(t, "no more than ten mails are sent", func() bool {
		now, _ := mailsTo(t, c, "moved@example.com", "")
		return strings.Count(now, " held") == 8 && strings.Count(now, " failed") == 5 // two went to the old address
	})
}
