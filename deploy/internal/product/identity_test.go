package product_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity/keys"
)

func path(format string, args ...any) string { return fmt.Sprintf(format, args...) }

const usersAdmins = `{"users": {"admins": {"read": true, "write": true}}}`

func TestImportedKey(t *testing.T) { shared(t, testImportedKey) }

func testImportedKey(t *testing.T, _ *product.Product, c *testkit.Client) {
	const value = "a-key-that-another-panel-made-0001"
	c.WithKey(value).Do("GET", "/auth/key/current", nil).Want(401)

	created := testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", map[string]any{"name": "old", "key": value}).Want(200))
	if created.Key != value {
		t.Fatalf("got %+v, want the key %s", created, value)
	}
	becomes(t, c.WithKey(value), "/auth/key/current", 200)

	_, few := newAdmin(t, c, "few", `{}`)
	few.Do("POST", "/auth/key", map[string]any{"name": "x", "key": value + "x"}).Want(403)
	ownKey := testkit.Decode[keys.APIKey](few.Do("GET", "/auth/key/current", nil)).ID
	few.Do("PATCH", path("/auth/key/%d", ownKey), map[string]any{"name": "x", "key": value + "x"}).Want(403)

	const next = "a-key-that-another-panel-made-0002"
	c.WithKey(next).Do("GET", "/auth/key/current", nil).Want(401)
	if edited := testkit.Decode[keys.APIKey](
		c.Do("PATCH", path("/auth/key/%d", created.ID), map[string]any{"name": "old", "key": next}).Want(200),
	); edited.Key != next {
		t.Fatalf("got %+v, want the key %s", edited, next)
	}
	becomes(t, c.WithKey(value), "/auth/key", 401)
	becomes(t, c.WithKey(next), "/auth/key/current", 200)
}

// soonExpiring creates a key that expires as soon as the time for its creation has passed, and returns when.
func soonExpiring(c *testkit.Client, body map[string]any, headers ...string) (at time.Time, created *testkit.Response) {
	for life := 2 * time.Second; ; life *= 2 {
		at = time.Now().Add(life)
		body["expires_at"] = rest.Timestamp{Time: at}
		created = c.Do("POST", "/auth/key", body, headers...)
		if created.Status == 200 || life > time.Minute {
			return at, created.Want(200)
		}
		created.WantErrors("/expires_at", "out_of_range") // it took longer than that
	}
}

// Revocations and grants take effect a moment after their response.
func TestRevocation(t *testing.T) { shared(t, testRevocation) }

func testRevocation(t *testing.T, _ *product.Product, c *testkit.Client) {
	id, own := newAdmin(t, c, "eve", `{"network": {"switches": {"read": true}}}`)
	own.Do("GET", "/port-speed", nil).Want(200)
	own.Do("GET", "/group", nil).Want(403)

	c.Do("PATCH", path("/admin/%d/permission", id), `{"network": {"switches": {"read": false}, "groups": {"read": true}}}`).Want(200)
	becomes(t, own, "/port-speed", 403)
	own.Do("GET", "/group", nil).Want(200)

	c.Do("DELETE", path("/admin/%d", id), nil).Want(200)
	becomes(t, own, "/group", 401)
}
