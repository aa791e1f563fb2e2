package identity_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/session"
)

// linkCode returns the code of a new link.
func linkCode(t *testing.T, c *testkit.Client) string {
	t.Helper()
	return parseLink(t, testkit.Decode[session.SSOLink](c.Do("GET", "/auth/sso", nil).Want(200)).URL).Get("key")
}

// exchange begins the session of a code from an address, and returns its key with a client that uses it from there.
func exchange(c *testkit.Client, code, address string) (keys.APIKey, *testkit.Client) {
	began := testkit.Decode[keys.APIKey](c.WithKey("").Do("POST", "/auth/sso", exchangeBody(code), "Test-Address", address).Want(200))
	return began, c.WithKey(began.Key)
}

// actFor begins an acting session with a key.
func actFor(by *testkit.Client, owner string) (keys.APIKey, *testkit.Client) {
	began := testkit.Decode[keys.APIKey](by.Do("POST", "/auth/key", map[string]any{"owner": map[string]any{"url": owner}}).Want(200))
	return began, by.WithKey(began.Key)
}

// An acting session makes links for its account. Their sessions have the same maker, the same bounds and no more time.
func TestLinkByActingSession(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	s.setPanels()
	testkit.Eventually(t, "the service knows the panels' addresses", func() bool { return c.Do("GET", "/auth/sso", nil).Status == 200 })
	client := s.newPerson("client", "mine@example.com")
	other := s.newPerson("client", "other@example.com")
	owner := path("/client/%d", client)
	maker, billing := newAdmin(t, c, "billing", `{"users": {"clients": {"read": true, "write": true}}}`)
	expires := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	key := testkit.Decode[keys.APIKey](billing.Do("POST", "/auth/key", map[string]any{
		"name": "panel", "allowed_cidrs": []string{"192.0.2.0/24"}, "expires_at": map[string]any{"iso_8601": expires},
	}).Want(200))
	acting, as := actFor(c.WithKey(key.Key), owner)

	// The session of the code: once, for the same account, by the same maker, bound to the address, no longer than its parent.
	// A verifier is for sign-ins that a panel has begun itself, and does not use the code up.
	code := linkCode(t, as)
	withVerifier := map[string]any{"code": code, "verifier": "of a sign-in at a provider"}
	c.WithKey("").Do("POST", "/auth/sso", withVerifier, "Test-Address", "198.51.100.7").Want(401)
	began, panel := exchange(c, code, "198.51.100.7")
	c.WithKey("").Do("POST", "/auth/sso", exchangeBody(code)).Want(401)
	if began.Owner.URL != owner || !slices.Equal(began.Networks, []string{"198.51.100.7/32"}) ||
		began.ExpiresAt == nil || began.ExpiresAt.After(acting.ExpiresAt.Time) || began.ExpiresAt.After(expires) {
		t.Errorf("got the session %+v, want one of %s from 198.51.100.7/32 that ends by %s", began, owner, acting.ExpiresAt)
	}
	panel.Do("GET", current, nil, "Test-Address", "198.51.100.7").Want(200)
	panel.Do("GET", current, nil, "Test-Address", "192.0.2.7").Want(401)
	var fromDB struct{ actor, bound, parent string }
	const sql = "SELECT actor_type || ' ' || actor_id, coalesce(bound::text, 'none'), made_with::text FROM api_key WHERE id = $1"
	testkit.Must(t, s.DB.QueryRow(t.Context(), sql, began.ID).Scan(&fromDB.actor, &fromDB.bound, &fromDB.parent))
	var parentBound string
	testkit.Must(
		t,
		s.DB.QueryRow(t.Context(), "SELECT coalesce(bound::text, 'none') FROM api_key WHERE id = $1", acting.ID).Scan(&parentBound),
	)
	if want := path("admin %d", maker); fromDB.actor != want || fromDB.bound != parentBound || fromDB.parent != fmt.Sprint(acting.ID) {
		t.Errorf("got %+v, want the maker %s, the bound %s and the parent %d", fromDB, want, parentBound, acting.ID)
	}
	if s.Clients.Account(client).Claimed {
		t.Error("after another acted for the account: got it claimed, want it unclaimed")
	}

	// No other account, no keys, no longer life by a renewal.
	from := []string{"Test-Address", "198.51.100.7"}
	for _, elsewhere := range []string{path("/client/%d", other), path("/admin/%d", maker), "/admin/1", "/integration/1"} {
		as.Do("GET", "/auth/sso?owner="+elsewhere, nil).
			WantDetail(problem.Forbidden, "An acting session can create links only for its own account, "+owner+".")
		panel.Do("GET", "/auth/sso?owner="+elsewhere, nil, from...).Want(403)
	}
	for _, body := range []string{`{"name": "x"}`, `{"owner": {"url": "` + owner + `"}}`} {
		panel.Do("POST", "/auth/key", body, from...).Want(403)
	}
	renewed := testkit.Decode[keys.APIKey](panel.Do("POST", "/auth/key", `{}`, from...).Want(200))
	if renewed.ExpiresAt.After(acting.ExpiresAt.Time) || !slices.Equal(renewed.Networks, began.Networks) {
		t.Errorf("got a renewal %+v, want the end %s and the networks %v at most", renewed, acting.ExpiresAt, began.Networks)
	}
	panel = c.WithKey(renewed.Key)

	// Further links, at any depth, end with the first session: at once, the entries in Redis and unused codes too.
	deeper, deep := exchange(
		c,
		parseLink(t, testkit.Decode[session.SSOLink](panel.Do("GET", "/auth/sso", nil, from...).Want(200)).URL).Get("key"),
		"203.0.113.9",
	)
	deep.Do("GET", current, nil, "Test-Address", "203.0.113.9").Want(200)
	unused := linkCode(t, as)
	hash := apikey.Hash(deeper.Key)
	if _, _, err := keycache.Get[keycache.Key](t.Context(), s.Deps.Entries, identity.Name, keys.EntryName(hash[:])); err != nil {
		t.Errorf("got %v for the session's entry in Redis, want the entry", err)
	}
	as.Do("DELETE", current, nil).Want(200)
	if _, _, err := keycache.Get[keycache.Key](t.Context(), s.Deps.Entries, identity.Name, keys.EntryName(hash[:])); err == nil {
		t.Error("got the entry of a session in Redis after the first session of its chain ended, want none")
	}
	panel.Do("GET", current, nil, from...).Want(401)
	deep.Do("GET", current, nil, "Test-Address", "203.0.113.9").Want(401)
	c.WithKey("").Do("POST", "/auth/sso", exchangeBody(unused)).Want(401)

	// The disabled maker's links and sessions are refused.
	_, as = actFor(c.WithKey(key.Key), owner)
	unused = linkCode(t, as)
	_, panel = exchange(c, linkCode(t, as), "198.51.100.7")
	c.Do("PATCH", path("/admin/%d", maker), disable).Want(200)
	panel.Do("GET", current, nil, from...).Want(401)
	c.WithKey("").Do("POST", "/auth/sso", exchangeBody(unused)).Want(401)
	c.Do("PATCH", path("/admin/%d", maker), enable).Want(200)
	panel.Do("GET", current, nil, from...).Want(200)

	// So they are if the key is deleted again after a restore brought it back.
	unused = linkCode(t, as)
	s.reconcile(lost("auth.key.deleted", key.ID))
	panel.Do("GET", current, nil, from...).Want(401)
	as.Do("GET", current, nil).Want(401)
	c.WithKey("").Do("POST", "/auth/sso", exchangeBody(unused)).Want(401)
}

// The sessions of a client's own links end with a change of its password, however many links lie between.
func TestOwnLinksEndWithPassword(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	s.setPanels()
	testkit.Eventually(t, "the service knows the panels' addresses", func() bool { return c.Do("GET", "/auth/sso", nil).Status == 200 })
	id := s.newPerson("client", "own@example.com")
	_, signedIn := signIn(t, c, loginBody("client", "own@example.com", password))
	_, first := exchange(c, linkCode(t, signedIn), "192.0.2.7")
	_, second := exchange(c, linkCode(t, first), "192.0.2.7")
	code := linkCode(t, second)
	second.Do("GET", current, nil).Want(200)
	s.editClient(id, func(a *credentials.Account) { a.Version++ })
	second.Do("GET", current, nil).Want(401)
	_, late := exchange(c, code, "192.0.2.7")
	late.Do("GET", current, nil).Want(401)
}

// A chain of links has at most as many sessions as an account.
func TestChainOfLinksEnds(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	s.setPanels()
	testkit.Eventually(t, "the service knows the panels' addresses", func() bool { return c.Do("GET", "/auth/sso", nil).Status == 200 })
	_, last := actFor(c, path("/client/%d", s.newPerson("client", "mine@example.com")))
	for range 49 {
		_, last = exchange(c, linkCode(t, last), "192.0.2.7")
	}
	c.WithKey("").Do("POST", "/auth/sso", exchangeBody(linkCode(t, last))).Want(409)
	last.Do("GET", current, nil).Want(200)
}
