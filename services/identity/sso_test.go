package identity_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/session"
)

// parseLink returns the values that a link passes to the panel.
func parseLink(t *testing.T, link string) url.Values {
	t.Helper()
	at, err := url.Parse(link)
	if err != nil || !strings.HasSuffix(at.Path, "/auth/sso") || at.RawQuery != "" {
		t.Fatalf("got the link %s and the error %v, want one to /auth/sso without a query", link, err)
	}
	values, err := url.ParseQuery(at.Fragment)
	if err != nil || values.Get("key") == "" {
		t.Fatalf("got the link %s and the error %v, want one with a key in its fragment", link, err)
	}
	return values
}

func exchangeBody(code string) string { return `{"code": "` + code + `"}` }

// A link works once, signs in to accounts that its creator may act for, and leads to nowhere but the panel.
func TestSSO(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	s.setPanels()
	testkit.Eventually(t, "the service knows the panels' addresses", func() bool { return c.Do("GET", "/auth/sso", nil).Status == 200 })
	anonymous := c.WithKey("")
	link := func(c *testkit.Client, query string) session.SSOLink {
		t.Helper()
		return testkit.Decode[session.SSOLink](c.Do("GET", "/auth/sso"+query, nil).Want(200))
	}
	key := testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", `{"name": "billing"}`).Want(200))
	billing := c.WithKey(key.Key)
	self := path("/client/%d", s.newPerson("client", "mine@example.com"))
	other := s.newPerson("client", "theirs@example.com")

	// A link for another account, as JSON and as a redirect.
	created := link(billing, "?owner="+self+"&view_type=server&view_id=7&embed=1&redirect=/a?b=c")
	values := parseLink(t, created.URL)
	if !strings.HasPrefix(created.URL, "https://panel.example.com/auth/sso#") || values.Get("view_type") != "server" ||
		values.Get("view_id") != "7" ||
		values.Get("embed") != "1" ||
		values.Get("redirect") != "/a?b=c" {
		t.Errorf("got the link %s, want one to the panel's view of server 7", created.URL)
	}
	if left := time.Until(created.ExpiresAt.Time); left > time.Minute || left <= 0 {
		t.Errorf("got a link that expires in %s, want within a minute", left)
	}
	sent := billing.Do("GET", "/auth/sso?owner="+self, nil, "Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	if to := sent.Want(http.StatusFound).Header.Get("Location"); parseLink(t, to).Get("key") == "" {
		t.Errorf("got a redirect to %s, want a link with a key", to)
	}

	// The code works once.
	var done atomic.Int32
	var all sync.WaitGroup
	var mu sync.Mutex
	var began keys.APIKey
	for range 32 {
		all.Go(func() {
			switch response := anonymous.Do("POST", "/auth/sso", exchangeBody(values.Get("key"))); response.Status {
			case 200:
				done.Add(1)
				mu.Lock()
				defer mu.Unlock()
				if err := json.Unmarshal([]byte(response.Text), &began); err != nil {
					t.Error(err)
				}
			case 401:
			default:
				t.Errorf("got %d: %s, want 200 or 401", response.Status, response.Text)
			}
		})
	}
	all.Wait()
	if done.Load() != 1 || began.Owner.URL != self {
		t.Fatalf("got %d sign-ins with the code, for %+v, want 1 for %s", done.Load(), began.Owner, self)
	}
	as := c.WithKey(began.Key)
	as.Do("GET", current, nil).Want(200)
	as.Do("POST", "/auth/key", `{"name": "x"}`).Want(403)
	if s.Clients.Account(1).Claimed {
		t.Error("after another acted for the account: got it claimed, want it unclaimed")
	}

	// Callers that may not act for the account get no link, and no link leads elsewhere.
	_, few := newAdmin(t, c, "few", `{"users": {"clients": {"read": true}}}`)
	few.Do("GET", "/auth/sso?owner="+self, nil).Want(403)
	few.Do("GET", "/auth/sso?owner=/admin/1", nil).Want(403)
	s.System.SetIntegration(1, "shop")
	shop := testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", `{"name": "shop", "owner": {"url": "/integration/1"}}`).Want(200))
	c.WithKey(shop.Key).Do("GET", "/auth/sso", nil).Want(422)
	billing.Do("GET", "/auth/sso?owner=", nil).Want(400)
	billing.Do("GET", "/auth/sso?owner=/client/999999", nil).Want(422)
	for _, elsewhere := range []string{
		"https://evil.example", "//evil.example", "/\\evil.example", "evil", "/%09/evil.example", "javascript:alert(1)", "/%0d%0aX:y",
		"///evil.example", "/\\/evil.example", "%20//evil.example", "https:evil.example", "\\\\evil.example", "@evil.example",
	} {
		c.Do("GET", "/auth/sso?redirect="+strings.ReplaceAll(elsewhere, "\\", "%5C"), nil).Want(400)
	}
	anonymous.Do("POST", "/auth/sso", exchangeBody("x")).Want(401)
	anonymous.Do("POST", "/auth/sso", `{}`).WantErrors("/code", "required")
	anonymous.Do("GET", "/auth/sso", nil).Want(401)

	// A link ends with the key that created it, and so does its session.
	later := parseLink(t, link(billing, "?owner="+self).URL).Get("key")
	expired := parseLink(t, link(billing, "?owner="+self).URL).Get("key")
	testkit.Execute(
		t,
		s.DB,
		"UPDATE sso_code SET expires_at = now() - interval '1 second' WHERE hash = sha256('"+expired+"'::bytea)",
	)
	anonymous.Do("POST", "/auth/sso", exchangeBody(expired)).Want(401)
	c.Do("DELETE", path("/auth/key/%d", key.ID), nil).Want(200)
	anonymous.Do("POST", "/auth/sso", exchangeBody(later)).Want(401)
	as.Do("GET", current, nil).Want(401)

	// A client's own link: the login has claimed the account, and a change of its password ends the link's session.
	_, signedIn := signIn(t, c, loginBody("client", "theirs@example.com", password))
	if !s.Clients.Account(other).Claimed {
		t.Error("after a login: got it unclaimed, want it claimed")
	}
	own, kept := parseLink(t, link(signedIn, "").URL).Get("key"), parseLink(t, link(signedIn, "").URL).Get("key")
	begun := c.WithKey(testkit.Decode[keys.APIKey](anonymous.Do("POST", "/auth/sso", exchangeBody(own)).Want(200)).Key)
	begun.Do("GET", current, nil).Want(200)
	s.editClient(other, func(a *credentials.Account) { a.Version++ })
	begun.Do("GET", current, nil).Want(401)
	late := testkit.Decode[keys.APIKey](anonymous.Do("POST", "/auth/sso", exchangeBody(kept)).Want(200))
	c.WithKey(late.Key).Do("GET", current, nil).Want(401)
}
