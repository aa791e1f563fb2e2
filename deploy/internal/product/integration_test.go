package product_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/clients"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/network"
	"github.com/ironplane/ironplane/services/system"
	"github.com/ironplane/ironplane/services/system/integration"
)

// newIntegration creates an integration with these permissions, and returns a client with its key.
func newIntegration(t *testing.T, c *testkit.Client, name, permissions string) (id int64, client *testkit.Client) {
	t.Helper()
	id = c.Do("POST", "/integration", map[string]any{"name": name}).Want(200).ID()
	c.Do("PATCH", path("/integration/%d/permission", id), permissions).Want(200)
	return id, c.WithKey(keyOf(t, c, path("/integration/%d", id)))
}

// keyOf creates a key of an account.
func keyOf(t *testing.T, c *testkit.Client, account string) string {
	t.Helper()
	return testkit.Decode[keys.APIKey](
		c.Do("POST", "/auth/key", map[string]any{"name": "own", "owner": map[string]any{"url": account}}).Want(200),
	).Key
}

func TestIntegrations(t *testing.T) { both(t, testIntegrations) }

func testIntegrations(t *testing.T, p *product.Product, c *testkit.Client) {
	id, shop := newIntegration(t, c, "Shop", `{"network": {"groups": {"read": true}, "entities": {"read": true, "write": true}}}`)
	own := path("/integration/%d", id)
	c.Do("POST", "/integration", `{"name": "SHOP"}`).WantErrors("/name", "taken")
	shop.Do("GET", "/group", nil).Want(200)
	shop.Do("POST", "/group", `{"name": "a"}`).WantDetail(http.StatusForbidden, "The key lacks network.groups write.")
	if key := testkit.Decode[keys.APIKey](
		shop.Do("GET", "/auth/key/current", nil).Want(200),
	); key.Owner.URL != own || key.Owner.Name == nil ||
		*key.Owner.Name != "Shop" {
		t.Errorf("got the key %+v, want one of Shop at %s", key, own)
	}

	testkit.Eventually(t, "its key, permissions and clients are counted", func() bool {
		i := testkit.Decode[integration.Integration](c.Do("GET", own, nil).Want(200))
		return i.Keys == 1 && i.Permissions == 2 && i.Clients == 0
	})

	c.Do("PATCH", own, `{"name": "Web shop"}`).Want(200)
	testkit.Eventually(t, "the owner of the keys has the new name", func() bool {
		return strings.Contains(c.Do("GET", "/auth/key?owner="+own, nil).Want(200).Text, `"Web shop"`)
	})

	// A disabled integration's key works again once it is enabled.
	for range 2 {
		c.Do("PATCH", own, disable).Want(200)
		becomes(t, shop, own, 401)
		c.Do("PATCH", own, enable).Want(200)
		becomes(t, shop, own, 200)
	}

	// A deleted integration's key is refused at once, and deleted soon.
	c.Do("DELETE", own, nil).Want(200)
	becomes(t, shop, "/group", 401)
	testkit.Eventually(t, "its keys are deleted", func() bool {
		return c.Do("GET", "/auth/key?owner="+own, nil).Want(200).Text == "[]\n"
	})
	for _, owner := range []string{own, "/integration/999999", "/client/999999"} {
		c.Do("POST", "/auth/key", map[string]any{"name": "late", "owner": map[string]any{"url": owner}}).WantErrors("/owner/url", "not_found")
	}
	producttest.AwaitLog(t, p)
	if text := c.Do("GET", "/log?type=auth.key.deleted", nil).Want(200).Text; !strings.Contains(text, `"own"`) {
		t.Errorf(`got %s, want the deletion of the key "own"`, text)
	}
}

// An integration that is deleted with detach=true stops working at once. Then a job removes it from its clients, however
// many they are, and deletes it.
func TestDetachedIntegration(t *testing.T) { both(t, testDetachedIntegration) }

func testDetachedIntegration(t *testing.T, p *product.Product, c *testkit.Client) {
	const clientCount = 250
	id, shop := newIntegration(t, c, "Shop", `{"users": {"clients": {"read": true, "write": true}}}`)
	at := path("/integration/%d", id)
	client := shop.Do("POST", "/client", order("ben@example.com", "billing_id", 4711)).Want(200).ID()
	db := p.Databases[clients.Name]
	testkit.Execute(
		t,
		db,
		"INSERT INTO client (email, first, last, billing_id, integration_id) SELECT 'c' || n || '@example.com', 'Ben', n, n, $1 "+
			"FROM generate_series(2, $2) n",
		id,
		clientCount,
	)
	other := c.Do("POST", "/client", order("eve@example.com")).Want(200).ID()

	_, lesser := newAdmin(t, c, "lesser", `{"system": {"integrations": {"read": true, "write": true}}, "users": {"clients": {"read": true}}}`)
	lesser.Do("DELETE", at+"?detach=true", nil).Want(403)
	c.Do("DELETE", at, nil).WantDetail(http.StatusConflict, "Integration 1 has 250 clients.")
	c.Do("DELETE", at+"?detach=maybe", nil).Want(400)

	release := testkit.HoldLock(t, db, func(tx *pg.Tx) error {
		_, err := tx.Exec(t.Context(), "SELECT FROM client WHERE id = $1 FOR UPDATE", client)
		return err
	})
	for range 2 {
		c.Do("DELETE", at+"?detach=true", nil).Want(200)
	}
	if is := testkit.Decode[integration.Integration](c.Do("GET", at, nil).Want(200)); !is.Detaching {
		t.Errorf("got %+v, want an integration that is detaching", is)
	}
	c.Do("POST", "/client", order("late@example.com", "integration_id", id)).WantErrors("/billing/integration", "closing")
	c.Do("PATCH", path("/client/%d", other), map[string]any{"integration_id": id}).WantErrors("/billing/integration", "closing")
	c.Do("DELETE", at, nil).WantDetail(http.StatusConflict, "Integration 1 is already being deleted.")
	testkit.Eventually(t, "its key is refused", func() bool { return shop.Do("GET", "/client", nil).Status == 401 })
	c.Do("PATCH", at, enable).Want(200)
	shop.Do("GET", "/client", nil).Want(401)
	release()

	testkit.Eventually(t, "the integration is deleted", func() bool { return c.Do("GET", at, nil).Status == 404 })
	c.Do("DELETE", at+"?detach=true", nil).Want(404)
	if is := testkit.Decode[clients.ListedClient](
		c.Do("GET", path("/client/%d", client), nil).Want(200),
	); is.BillingID != nil ||
		is.Integration != nil {
		t.Errorf("got the client %+v, want no billing id and no integration", is)
	}
	var left, maxLeft int
	err := db.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM client WHERE integration_id IS NOT NULL "+
		"OR billing_id IS NOT NULL), (SELECT max(n) FROM (SELECT count(*) AS n FROM change WHERE type = 'client.edited' GROUP BY at) same)").
		Scan(&left, &maxLeft)
	if err != nil || left > 0 || maxLeft > 100 {
		t.Errorf("got %d clients left and %d detached at once (%v), want none left and at most 100 at once", left, maxLeft, err)
	}
	producttest.AwaitLog(t, p)
	logged := testkit.Decode[[]struct{ ID int64 }](c.Do("GET", "/log?type=client.edited", nil).Want(200))
	if len(logged) != clientCount {
		t.Fatalf("got %d log items, want %d", len(logged), clientCount)
	}
	if text := c.Do("GET", path("/log/%d", logged[0].ID), nil).
		Want(200).
		Text; !strings.Contains(text, `"billing_id":{"before":`) ||
		!strings.Contains(text, `"integration.id":{"before":1}`) {
		t.Errorf("got %s, want the billing id and the integration 1 before the change", text)
	}
	if text := c.Do("GET", "/log?type=integration.deleted", nil).Want(200).Text; !strings.Contains(text, `"Shop"`) {
		t.Errorf(`got %s, want the deletion of "Shop"`, text)
	}

	// A detaching integration without a job, as after a restore, is deleted, too.
	id = c.Do("POST", "/integration", `{"name": "Second shop"}`).Want(200).ID()
	c.Do("POST", "/client", order("third@example.com", "integration_id", id)).Want(200)
	testkit.Execute(t, p.Databases[system.Name], "UPDATE integration SET detaching = true WHERE id = $1", id)
	testkit.Eventually(
		t,
		"the second integration is deleted",
		func() bool { return c.Do("GET", path("/integration/%d", id), nil).Status == 404 },
	)
	c.Do("DELETE", path("/integration/%d?detach=true", c.Do("POST", "/integration", `{"name": "Third shop"}`).Want(200).ID()), nil).Want(200)
	testkit.Eventually(t, "the third integration is deleted", func() bool { return c.Do("GET", "/integration", nil).Want(200).Text == "[]\n" })
}

// No admin extends its own rights by an integration: neither by granting permissions that it lacks, nor by the keys or the
// account of an integration that has them.
func TestNoPrivilegeEscalationByAnIntegration(t *testing.T) {
	both(t, testNoPrivilegeEscalationByAnIntegration)
}

func testNoPrivilegeEscalationByAnIntegration(t *testing.T, _ *product.Product, c *testkit.Client) {
	id, shop := newIntegration(
		t,
		c,
		"Shop",
		`{"users": {"admins": {"read": true, "write": true}}, "system": {"integrations": {"write": true}}}`,
	)
	own := path("/integration/%d", id)
	key := testkit.Decode[keys.APIKey](shop.Do("GET", "/auth/key/current", nil).Want(200)).ID
	_, eve := newAdmin(t, c, "eve", `{"system": {"integrations": {"read": true, "write": true}}}`)
	lacks := "The account holds permissions that the key lacks: users.admins read, users.admins write."
	ofShop := map[string]any{"name": "eve's", "owner": map[string]any{"url": own}}
	for _, try := range []struct {
		method, path string
		body         any
		detail       string
	}{
		{"POST", "/auth/key", ofShop, lacks},
		{"PATCH", path("/auth/key/%d", key), `{"name": "eve's"}`, lacks},
		{"DELETE", path("/auth/key/%d", key), nil, lacks},
	} {
		eve.Do(try.method, try.path, try.body).WantDetail(http.StatusForbidden, try.detail)
	}
	other := eve.Do("POST", "/integration", `{"name": "Eve's"}`).Want(200).ID()
	eve.Do("PATCH", path("/integration/%d/permission", other), `{"system": {"integrations": {"write": true}}}`).Want(200)

	// A key that the admin creates is bound by the admin's permissions, also after the integration gets more.
	bound := c.WithKey(keyOf(t, eve, path("/integration/%d", other)))
	c.Do("PATCH", path("/integration/%d/permission", other), `{"users": {"admins": {"read": true}}}`).Want(200)
	full := c.WithKey(keyOf(t, c, path("/integration/%d", other)))
	testkit.Eventually(t, "the integration can read admins", func() bool { return full.Do("GET", "/admin", nil).Status == 200 })
	bound.Do("GET", "/admin", nil).Want(403)
	testkit.Eventually(t, fmt.Sprintf("eve cannot write the keys of integration %d, which holds more", other), func() bool {
		return eve.Do(
			"POST",
			"/auth/key",
			map[string]any{"name": "more", "owner": map[string]any{"url": path("/integration/%d", other)}},
		).Status == 403
	})
}

// An integration shows how many servers its clients have: those of a client count for its present integration.
func TestServersOfIntegrations(t *testing.T) {
	t.Parallel()
	_, c := producttest.Start(t)
	group := c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200).ID()
	c.Do("POST", path("/group/%d/entity/bulk", group), `{"from": "192.0.2.1", "to": "192.0.2.9"}`).Want(200)
	integration := func(name string) int64 {
		return c.Do("POST", "/integration", map[string]any{"name": name}).Want(200).ID()
	}
	shop, hub := integration("Shop"), integration("Hub")
	ben := map[string]any{"first": "Ben", "last": "Miller", "email": "ben@example.com", "integration": shop}
	client := c.Do("POST", "/client", ben).Want(200).ID()
	var entities []network.IPEntity
	for server := range 3 {
		body := path(`{"owner": {"id": %d, "server": {"id": %d}}}`, client, server/2+1) // two servers, one with two addresses
		allocated := testkit.Decode[[]network.IPEntity](c.Do("POST", path("/group/%d/allocate", group), body).Want(200))
		entities = append(entities, allocated...)
	}
	shows := func(wantShop, wantHub int64) {
		t.Helper()
		var got [2]int64
		testkit.Eventually(t, path("the integrations have %d and %d servers", wantShop, wantHub), func() bool {
			for i, id := range []int64{shop, hub} {
				got[i] = testkit.Decode[struct{ Servers int64 }](c.Do("GET", path("/integration/%d", id), nil).Want(200)).Servers
			}
			return got == [2]int64{wantShop, wantHub}
		}, func() string { return fmt.Sprint("got ", got) })
	}
	shows(2, 0)
	c.Do("PATCH", path("/client/%d", client), map[string]any{"integration": hub}).Want(200)
	shows(0, 2)
	c.Do("POST", path("/entity/%d/release", entities[2].ID), nil).Want(200)
	shows(0, 1)
}
