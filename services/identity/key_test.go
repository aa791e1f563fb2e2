package identity_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity/keys"
)

func TestAPIKey(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	created := testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", `{"name": "billing"}`).Want(200))
	if apikey.DetectFormat(created.Key) != apikey.Issued || created.Owner.URL != "/admin/1" || *created.Owner.Name != "admin" ||
		created.ExpiresAt != nil {
		t.Fatalf("got %+v, want an issued key of /admin/1 that does not expire", created)
	}
	var hash []byte
	if err := s.DB.QueryRow(t.Context(), "SELECT hash FROM api_key WHERE id = $1", created.ID).Scan(&hash); err != nil {
		t.Fatal(err)
	}
	if want := apikey.Hash(created.Key); string(hash) != string(want[:]) {
		t.Fatalf("got the stored key %x, want its hash %x", hash, want)
	}
	for _, response := range []*testkit.Response{c.Do("GET", path("/auth/key/%d", created.ID), nil), c.Do("GET", "/auth/key", nil),
		c.Do("PATCH", path("/auth/key/%d", created.ID), `{"name": "renamed"}`)} {
		if strings.Contains(response.Want(200).Text, created.Key) || strings.Contains(response.Text, `"key"`) {
			t.Fatalf("got %s, want a response without the key", response.Text)
		}
	}
	if current := testkit.Decode[keys.APIKey](
		c.WithKey(created.Key).Do("GET", "/auth/key/current", nil).Want(200),
	); current.Name != "renamed" {
		t.Fatalf("got the current key %+v, want the name renamed", current)
	}

	c.Do("POST", "/auth/key", `{}`).WantErrors("/name", "required")
	c.Do("PATCH", path("/auth/key/%d", created.ID), `{}`).WantErrors("/name", "required")
	c.Do("POST", "/auth/key", `{"name": "x", "key": "short", "owner": {"url": "/server/3"}, "expires_at": {"iso_8601": "2020-01-01T00:00:00Z", "unix": 1577836800}}`).
		WantErrors("/expires_at", "out_of_range", "/key", "too_short", "/owner/url", "invalid")
	c.Do("POST", "/auth/key", `{"name": "x", "expires_at": {"iso_8601": "2030-01-01T00:00:00Z", "unix": 1}}`).
		WantErrors("/expires_at", "disagrees")
	c.Do("POST", "/auth/key", `{"name": "x", "expires_at": {"unix": "soon"}}`).WantErrors("/expires_at", "type")
	c.Do("POST", "/auth/key", `{"name": "x", "owner": {"url": "/admin/99"}}`).WantErrors("/owner/url", "not_found")
	c.Do("POST", "/auth/key", `{"name": "x", "owner": {"url": "/admin/3", "id": 4}}`).WantErrors("/owner/id", "disagrees")
	for owner, errors := range map[string][]string{`"owner": {"type": "admin", "id": 1}`: nil, `"owner_type": "admin", "owner_id": "1"`: nil, `"type": "admin", "owner_id": 1, "owner": {"url": "/admin/1"}`: nil,
		`"owner_type": "server", "owner_id": 1`:          {"/owner_type", "invalid"},
		`"type": "client", "owner": {"url": "/admin/1"}`: {"/type", "disagrees"},
		`"owner_id": 1`: {"/owner/url", "invalid"}} {
		response := c.Do("POST", "/auth/key", `{"name": "x", `+owner+`}`)
		if errors != nil {
			response.WantErrors(errors...)
		} else if key := testkit.Decode[keys.APIKey](response.Want(200)); key.Owner.URL != "/admin/1" {
			t.Errorf("%s: got %+v, want a key of /admin/1", owner, key)
		}
	}
	whole := c.Do("GET", path("/auth/key/%d", created.ID), nil).Want(200)
	for _, same := range []string{`"owner_type": "admin", "owner_id": 1`, `"owner_id": 1`, `"owner": {"url": "/admin", "id": 1}`} {
		if back := c.Do("PATCH", path("/auth/key/%d", created.ID), `{"name": "renamed", `+same+`}`).
			Want(200); back.Header.Get(
			"ETag",
		) != whole.Header.Get(
			"ETag",
		) {
			t.Errorf("%s: got the ETag %s, want %s", same, back.Header.Get("ETag"), whole.Header.Get("ETag"))
		}
	}
	c.Do("POST", "/auth/key", map[string]any{"name": "x", "key": created.Key[:len(created.Key)-1] + "!"}).WantErrors("/key", "checksum")
	c.Do("POST", "/auth/key", map[string]any{"name": "x", "key": created.Key}).WantErrors("/key", "taken")

	c.Do("DELETE", path("/auth/key/%d", created.ID), nil).Want(200)
	c.WithKey(created.Key).Do("GET", "/auth/key/current", nil).Want(401)
}

// A list has only the keys that the caller may read.
func TestKeysListed(t *testing.T) {
	t.Parallel()
	_, c := newFixture(t)
	_, powerless := newAdmin(t, c, "powerless", `{}`)
	_, reader := newAdmin(t, c, "reader", `{"users": {"admins": {"read": true}}}`)
	for caller, want := range map[*testkit.Client][]string{
		c: {"/admin/1", "/admin/2", "/admin/3"}, reader: {"/admin/1", "/admin/2", "/admin/3"}, powerless: {"/admin/2"},
	} {
		var got []string
		for _, key := range testkit.Decode[[]keys.APIKey](caller.Do("GET", "/auth/key", nil).Want(200)) {
			got = append(got, key.Owner.URL)
		}
		if !slices.Equal(got, want) {
			t.Errorf("got the keys of %v, want those of %v", got, want)
		}
		if found := testkit.Decode[[]keys.APIKey](caller.Do("GET", "/auth/key?owner=/admin/2&sort=-name", nil).Want(200)); len(found) != 1 {
			t.Errorf("got %+v, want one key", found)
		}
	}
}

func TestImportedKey(t *testing.T) {
	t.Parallel()
	_, c := newFixture(t)
	const value = "a-key-that-another-panel-made-0001"
	c.WithKey(value).Do("GET", "/auth/key/current", nil).Want(401)

	imported := testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", map[string]any{"name": "old", "key": value}).Want(200))
	if imported.Key != value {
		t.Fatalf("got %+v, want the key %s", imported, value)
	}
	c.WithKey(value).Do("GET", "/auth/key/current", nil).Want(200)

	_, few := newAdmin(t, c, "few", `{}`)
	few.Do("POST", "/auth/key", map[string]any{"name": "x", "key": value + "x"}).Want(403)
	ownID := testkit.Decode[keys.APIKey](few.Do("GET", "/auth/key/current", nil)).ID
	few.Do("PATCH", path("/auth/key/%d", ownID), map[string]any{"name": "x", "key": value + "x"}).Want(403)

	const next = "a-key-that-another-panel-made-0002"
	c.WithKey(next).Do("GET", "/auth/key/current", nil).Want(401)
	if edited := testkit.Decode[keys.APIKey](
		c.Do("PATCH", path("/auth/key/%d", imported.ID), map[string]any{"name": "old", "key": next}).Want(200),
	); edited.Key != next {
		t.Fatalf("got %+v, want the key %s", edited, next)
	}
	c.WithKey(value).Do("GET", "/auth/key/current", nil).Want(401)
	c.WithKey(next).Do("GET", "/auth/key/current", nil).Want(200)
}

// A key works until it expires, and then no longer.
func TestKeyExpires(t *testing.T) {
	t.Parallel()
	_, c := newFixture(t)
	key := testkit.Decode[keys.APIKey](
		c.Do("POST", "/auth/key", map[string]any{"name": "brief", "expires_at": rest.Timestamp{Time: time.Now().Add(time.Hour)}}).Want(200),
	)
	brief := c.WithKey(key.Key)
	brief.Do("GET", current, nil).Want(200)
	var end time.Time
	testkit.Eventually(t, "the end of the key is set before it has passed", func() bool {
		end = time.Now().Add(time.Second)
		body := map[string]any{"name": "brief", "expires_at": rest.Timestamp{Time: end}}
		return c.Do("PATCH", path("/auth/key/%d", key.ID), body).Status == 200
	})
	time.Sleep(time.Until(end))
	brief.Do("GET", current, nil).Want(401)
}

// Revocations and grants take effect with the response.
func TestRevocation(t *testing.T) {
	t.Parallel()
	_, c := newFixture(t)
	id, own := newAdmin(t, c, "eve", `{"network": {"switches": {"read": true}}}`)
	own.Do("GET", "/-/holds/network.switches", nil).Want(200)
	own.Do("GET", "/-/holds/network.groups", nil).Want(403)

	c.Do("PATCH", path("/admin/%d/permission", id), `{"network": {"switches": {"read": false}, "groups": {"read": true}}}`).Want(200)
	own.Do("GET", "/-/holds/network.switches", nil).Want(403)
	own.Do("GET", "/-/holds/network.groups", nil).Want(200)

	c.Do("DELETE", path("/admin/%d", id), nil).Want(200)
	own.Do("GET", "/-/holds/network.groups", nil).Want(401)
}

func TestBrowserDetails(t *testing.T) {
	t.Parallel()
	_, c := newFixture(t)
	if got := c.WithKey("").
		Do("GET", "/browser-details", nil, "X-Forwarded-For", "192.0.2.1").
		Want(200).
		Text; got != `{"ip":"192.0.2.7"}`+"\n" {
		t.Fatalf("got %s, want the address 192.0.2.7", got)
	}
}
