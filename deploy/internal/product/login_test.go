package product_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity/keys"
)

const password = "a long walk in the rain"

// signIn signs in, and returns the session's key and a client with it.
func signIn(t *testing.T, c *testkit.Client, body string) (keys.APIKey, *testkit.Client) {
	t.Helper()
	key := testkit.Decode[keys.APIKey](c.WithKey("").WithT(t).Do("POST", "/auth/key", body).Want(200))
	if key.Key == "" || key.Name != "Session" || key.ExpiresAt == nil {
		t.Fatalf("got %+v, want a session that expires", key)
	}
	return key, c.WithKey(key.Key).WithT(t)
}

// newPerson creates an admin or a client that can sign in.
func newPerson(t *testing.T, c *testkit.Client, kind, email string) int64 {
	t.Helper()
	body := map[string]any{"email": email, "password": password}
	if kind == "client" {
		body["first"], body["last"] = "Ben", "Miller"
	}
	return c.Do("POST", "/"+kind, body).Want(200).ID()
}

func loginOf(kind, email, password string) string {
	return `{"type": "` + kind + `", "email": "` + email + `", "password": "` + password + `"}`
}

// forgotten waits until no gateway uses a cached result from before.
func forgotten() { time.Sleep(100 * time.Millisecond) }

// An acting session has its own kind, and ends with the session or key that created it.
func TestActing(t *testing.T) { both(t, testActing) }

func testActing(t *testing.T, p *product.Product, c *testkit.Client) {
	shop := c.Do("POST", "/integration", `{"name": "shop"}`).Want(200).ID()
	c.Do("PATCH", path("/integration/%d/permission", shop), `{"users": {"clients": {"read": true, "write": true}}}`).Want(200)
	key := testkit.Decode[keys.APIKey](
		c.Do("POST", "/auth/key", path(`{"name": "shop", "owner": {"url": "/integration/%d"}}`, shop)).Want(200),
	)
	integration := c.WithKey(key.Key)
	ownClient := integration.Do("POST", "/client", order("mine@example.com")).Want(200).ID()
	others := newPerson(t, c, "client", "others@example.com")
	act := func(c *testkit.Client, owner string) *testkit.Response {
		return c.Do("POST", "/auth/key", map[string]any{"owner": map[string]any{"url": owner}})
	}
	act(integration, path("/client/%d", others)).Want(403)
	act(integration, "/client/999").WantErrors("/owner/url", "not_found")
	act(c, path("/integration/%d", shop)).Want(403)
	other, _ := newAdmin(t, c, "other", `{}`)
	act(c, path("/admin/%d", other)).Want(403)
	session := testkit.Decode[keys.APIKey](act(integration, path("/client/%d", ownClient)).Want(200))
	as := c.WithKey(session.Key)
	self := path("/client/%d", ownClient)
	as.Do("GET", self, nil).Want(200)
	as.Do("PATCH", self, `{"first": "Bert"}`).Want(200)
	as.Do("POST", "/auth/key", `{"name": "mine"}`).Want(403)
	act(as, self).Want(403)
	as.Do("PATCH", self, `{"verify": {"require": true}}`).Want(403)
	as.Do("PATCH", self, `{"email": "other@example.com"}`).Want(403)
	as.Do("POST", self+"/super", `{"client_email": "others@example.com"}`).Want(403)
	as.Do("DELETE", "/auth/session", nil).Want(403)
	if keys := testkit.Decode[[]keys.APIKey](c.Do("GET", path("/auth/key?owner=/client/%d", ownClient), nil).Want(200)); len(keys) != 0 {
		t.Errorf("got the keys %+v, want no acting session among them", keys)
	}
	as.Do("POST", "/auth/key", `{}`).Want(200)
	producttest.AwaitLog(t, p)
	if log := c.Do("GET", "/log?type=client.edited", nil).Want(200); !strings.Contains(log.Text, "by shop") {
		t.Errorf(`got %s, want "by shop" in it`, log.Text)
	}
	for range 3 {
		act(integration, self).Want(200)
	}
	producttest.AwaitLog(t, p)
	if items := testkit.Decode[[]struct{ ID int64 }](c.Do("GET", "/log?type=auth.session.began", nil).Want(200)); len(items) != 1 {
		t.Errorf("got %d log items that an integration acted, want 1", len(items))
	}
	c.Do("PATCH", path("/integration/%d/permission", shop), `{"users": {"clients": {"read": true, "write": false}}}`).Want(200)
	becomes(t, as, self, 401)
	c.Do("PATCH", path("/integration/%d/permission", shop), `{"users": {"clients": {"read": true, "write": true}}}`).Want(200)
	becomes(t, as, self, 200)
	c.Do("DELETE", path("/auth/key/%d", key.ID), nil).Want(200)
	becomes(t, as, self, 401)
}
