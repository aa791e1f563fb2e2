package identity_test

import (
	"slices"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/session"
)

// A session that a key begins for another account has the key's networks, or those that the key has for its sessions. Changes of the
// key reach its sessions.
func TestSessionNetworks(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	owner := path("/client/%d", s.newPerson("client", "mine@example.com"))
	key := testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", `{"name": "billing", "allowed_cidrs": ["192.0.2.0/24"]}`).Want(200))
	act := func(by string) keys.APIKey {
		t.Helper()
		return testkit.Decode[keys.APIKey](c.WithKey(by).Do("POST", "/auth/key", map[string]any{"owner": map[string]any{"url": owner}}).Want(200))
	}
	from := func(address string, k keys.APIKey, want int) {
		t.Helper()
		c.WithKey(k.Key).Do("GET", current, nil, "Test-Address", address).Want(want)
	}
	acting := act(key.Key)
	hash := apikey.Hash(acting.Key)
	hasEntry := func() bool {
		_, _, err := keycache.Get[keycache.Key](t.Context(), s.Deps.Entries, identity.Name, keys.EntryName(hash[:]))
		return err == nil
	}
	edit := func(networks string) {
		t.Helper()
		c.Do("PATCH", path("/auth/key/%d", key.ID), `{"name": "billing", `+networks+`}`).Want(200)
	}
	if !slices.Equal(acting.Networks, []string{"192.0.2.0/24"}) {
		t.Errorf("got a session with the networks %v, want its key's 192.0.2.0/24", acting.Networks)
	}
	from("192.0.2.200", acting, 200)
	from("198.51.100.7", acting, 401)
	renewed := testkit.Decode[keys.APIKey](c.WithKey(acting.Key).Do("POST", "/auth/key", `{}`).Want(200))
	from("198.51.100.7", renewed, 401)

	from("192.0.2.200", acting, 200)
	if !hasEntry() {
		t.Error("got no entry of the session in Redis, want one")
	}
	edit(`"session_cidrs": ["198.51.100.0/24", "2001:db8::/32"]`)
	if hasEntry() {
		t.Error("got the session's old entry in Redis after its key was edited, want none")
	}
	for _, k := range []keys.APIKey{acting, renewed, act(key.Key)} {
		from("192.0.2.200", k, 401)
		from("198.51.100.7", k, 200)
		from("2001:db8::7", k, 200)
	}
	from("198.51.100.7", key, 401)
	edit(`"session_cidrs": [], "allowed_cidrs": ["192.0.2.7"]`)
	from("192.0.2.200", renewed, 401)
	from("192.0.2.7", renewed, 200)
	edit(`"allowed_cidrs": []`)
	from("198.51.100.7", renewed, 200)

	// A key gives others and itself no more than its own sessions have.
	edit(`"allowed_cidrs": ["192.0.2.0/24"]`)
	own := c.WithKey(key.Key)
	for _, wider := range []string{`["0.0.0.0/0"]`, `["198.51.100.0/24"]`} {
		own.Do("POST", "/auth/key", `{"name": "heir", "session_cidrs": `+wider+`}`).WantErrors("/session_cidrs", "out_of_range")
		own.Do("PATCH", path("/auth/key/%d", key.ID), `{"name": "billing", "session_cidrs": `+wider+`}`).
			WantErrors("/session_cidrs", "out_of_range")
	}
	edit(`"session_cidrs": ["198.51.100.0/24"]`)
	heir := testkit.Decode[keys.APIKey](own.Do("POST", "/auth/key", `{"name": "heir"}`).Want(200))
	if !slices.Equal(heir.SessionNetworks, []string{"198.51.100.0/24"}) {
		t.Errorf("got a new key with the session networks %v, want its maker's 198.51.100.0/24", heir.SessionNetworks)
	}
	own.Do("POST", "/auth/key", `{"name": "narrower", "session_cidrs": ["198.51.100.7"]}`).Want(200)
	c.Do("POST", "/auth/key", `{"name": "wrong", "session_cidrs": ["x"]}`).WantErrors("/session_cidrs", "invalid")

	c.Do("DELETE", path("/auth/key/%d", key.ID), nil).Want(200)
	from("198.51.100.7", renewed, 401)
}

// A link's code may be exchanged from anywhere, whatever the networks of its key. The session works only from the address that began it.
func TestLinkSessionNetworks(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	s.setPanels()
	testkit.Eventually(t, "the service knows the panels' addresses", func() bool { return c.Do("GET", "/auth/sso", nil).Status == 200 })
	owner := path("/client/%d", s.newPerson("client", "mine@example.com"))
	key := testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", `{"name": "billing", "allowed_cidrs": ["192.0.2.7"]}`).Want(200))
	for address, addresses := range map[string]struct{ same, other, network string }{
		"198.51.100.7":      {"198.51.100.7", "198.51.100.8", "198.51.100.7/32"},
		"2001:db8:1:2::abc": {"2001:db8:1:2:ffff::1", "2001:db8:1:3::abc", "2001:db8:1:2::/64"},
	} {
		link := testkit.Decode[session.SSOLink](c.WithKey(key.Key).Do("GET", "/auth/sso?owner="+owner, nil).Want(200))
		began := testkit.Decode[keys.APIKey](c.WithKey("").Do("POST", "/auth/sso",
			exchangeBody(parseLink(t, link.URL).Get("key")), "Test-Address", address).Want(200))
		if !slices.Equal(began.Networks, []string{addresses.network}) {
			t.Errorf("got the networks %v, want %s", began.Networks, addresses.network)
		}
		as := c.WithKey(began.Key)
		as.Do("GET", current, nil, "Test-Address", addresses.same).Want(200)
		as.Do("GET", current, nil, "Test-Address", addresses.other).Want(401)
		as.Do("GET", current, nil, "Test-Address", "192.0.2.7").Want(401)
		as.Do("POST", "/auth/key", `{}`, "Test-Address", addresses.other).Want(401)
		renewed := testkit.Decode[keys.APIKey](as.Do("POST", "/auth/key", `{}`, "Test-Address", addresses.same).Want(200))
		c.WithKey(renewed.Key).Do("GET", current, nil, "Test-Address", addresses.other).Want(401)
		c.Do("PATCH", path("/auth/key/%d", key.ID), `{"name": "billing", "session_cidrs": ["192.0.2.0/24"]}`).Want(200)
		c.WithKey(renewed.Key).Do("GET", current, nil, "Test-Address", addresses.same).Want(200)
	}
}
