package product_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/identity/session"
	"github.com/ironplane/ironplane/services/system"
)

const password = "a long walk in the rain"

// signIn begins a session.
func signIn(t *testing.T, c *testkit.Client, body string) (keys.APIKey, *testkit.Client) {
	t.Helper()
	key := testkit.Decode[keys.APIKey](c.With("").For(t).Do("POST", "/auth/key", body).Want(200))
	if key.Key == "" || key.Name != "Session" || key.ExpiresAt == nil {
		t.Fatalf("signed in with %+v", key)
	}
	return key, c.With(key.Key).For(t)
}

// newPerson makes an admin or a client who can sign in.
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

// forgotten waits until no gateway goes by what it found before.
func forgotten() { time.Sleep(100 * time.Millisecond) }

func TestLogin(t *testing.T) { both(t, testLogin) }

func testLogin(t *testing.T, _ *product.Product, c *testkit.Client) {
	nobody := c.With("")
	for _, kind := range []string{"admin", "client"} {
		email := "one@" + kind + ".example.com"
		id := newPerson(t, c, kind, email)
		self := path("/%s/%d", kind, id)
		first, signedIn := signIn(t, c, loginOf(kind, strings.ToUpper(email), password))
		if first.Owner.URL != self {
			t.Errorf("signed in as %+v", first.Owner)
		}
		signedIn.Do("GET", self, nil).Want(200)
		if current := testkit.Decode[keys.APIKey](
			signedIn.Do("GET", "/auth/key/current", nil).Want(200),
		); current.ID != first.ID ||
			current.Key != "" {
			t.Errorf("the session's key is %+v", current)
		}
		_, other := signIn(t, c, loginOf(kind, email, password))
		if own := testkit.Decode[[]session.Session](
			signedIn.Do("GET", "/auth/session", nil).Want(200),
		); len(own) != 2 || own[0].IP != "127.0.0.1" || own[0].Agent != "Go-http-client/1.1" ||
			own[0].Acting {
			t.Errorf("the sessions are %+v", own)
		}
		c.Do("GET", "/auth/session", nil).Want(200)

		// Renewed, it goes on with another value, and for a moment with the old one.
		renewed := testkit.Decode[keys.APIKey](signedIn.Do("POST", "/auth/key", `{}`).Want(200))
		if renewed.ID != first.ID || renewed.Key == "" || renewed.Key == first.Key {
			t.Errorf("renewed as %+v", renewed)
		}
		for _, key := range []string{first.Key, renewed.Key} {
			c.With(key).Do("GET", self, nil).Want(200)
		}
		c.With(renewed.Key).Do("POST", "/auth/key", `[]`).Want(200)
		latest := testkit.Decode[keys.APIKey](signedIn.Do("POST", "/auth/key", `{"isWrapped": true}`).Want(200))
		signedIn.Do("PATCH", path("/auth/key/%d", first.ID), `{"name": "mine"}`).Want(403)
		made := testkit.Decode[keys.APIKey](signedIn.Do("POST", "/auth/key", `{"name": "lasting"}`).Want(200))
		if made.ExpiresAt != nil {
			t.Errorf("a login's session makes a key that expires: %+v", made)
		}

		// All values of a session end together.
		c.With(latest.Key).Do("DELETE", "/auth/key/current", nil).Want(200)
		forgotten()
		for _, key := range []string{first.Key, renewed.Key, latest.Key} {
			c.With(key).Do("GET", self, nil).Want(401)
		}
		other.Do("GET", self, nil).Want(200)
		_, third := signIn(t, c, loginOf(kind, email, password))
		other.Do("DELETE", "/auth/session", nil).Want(200)
		forgotten()
		third.Do("GET", self, nil).Want(401)
		last, fourth := signIn(t, c, loginOf(kind, email, password))
		other.Do("DELETE", path("/auth/session/%d", last.ID), nil).Want(200)
		forgotten()
		fourth.Do("GET", self, nil).Want(401)

		// A change of the password ends all but the one that it was made with.
		_, fifth := signIn(t, c, loginOf(kind, email, password))
		c.Do("PATCH", self, `{"password": "another long walk"}`).Want(200)
		forgotten()
		fifth.Do("GET", self, nil).Want(401)
		other.Do("GET", self, nil).Want(401)
		c.With(made.Key).Do("GET", self, nil).Want(200)
		nobody.Do("POST", "/auth/key", loginOf(kind, email, password)).Want(401)
		_, sixth := signIn(t, c, loginOf(kind, email, "another long walk"))
		c.Do("PATCH", self, `{"disabled": true}`).Want(200)
		forgotten()
		sixth.Do("GET", self, nil).Want(401)
		nobody.Do("POST", "/auth/key", loginOf(kind, email, "another long walk")).Want(401)
		c.Do("PATCH", self, `{"disabled": false}`).Want(200)
		forgotten()
		sixth.Do("GET", self, nil).Want(200)
		c.Do("DELETE", self, nil).Want(200)
		forgotten()
		sixth.Do("GET", self, nil).Want(401)
		nobody.Do("POST", "/auth/key", loginOf(kind, email, "another long walk")).Want(401)
	}
	nobody.Do("POST", "/auth/key", `{"type": "integration", "email": "x", "password": "y"}`).WantErrors("/type", "invalid")
	nobody.Do("POST", "/auth/key", `{"password": ""}`).WantErrors("/email", "required", "/type", "invalid")
	nobody.Do("POST", "/auth/key", `{"type": "client", "username": "x", "password": ""}`).WantErrors("/email", "required")
	nobody.Do("POST", "/auth/key", `{"name": "x"}`).Want(401)
	nobody.Do("POST", "/auth/key", `{}`).Want(401)
	c.Do("POST", "/auth/key", `{}`).WantErrors("/name", "required")
	c.Do("POST", "/auth/key", `{"name": ""}`).WantErrors("/name", "required")
	c.Do("POST", "/auth/key", `{"email": "x"}`).WantErrors("/name", "required")
}

// Whoever is not let in gets one answer, whether there is such an account or not.
func TestLoginAnswersAlike(t *testing.T) { producttest.Together(t, testLoginAnswersAlike) }

func testLoginAnswersAlike(t *testing.T, p *product.Product, c *testkit.Client) {
	for _, kind := range []string{"admin", "client"} {
		newPerson(t, c, kind, "right@"+kind)
		none := map[string]any{"email": "none@" + kind, "password": "", "first": "A", "last": "B"}
		c.Do("POST", "/"+kind, none).Want(200)
		gone := newPerson(t, c, kind, "gone@"+kind)
		c.Do("DELETE", path("/%s/%d", kind, gone), nil).Want(200)
		off := newPerson(t, c, kind, "off@"+kind)
		c.Do("PATCH", path("/%s/%d", kind, off), `{"disabled": true}`).Want(200)
	}
	var texts []string
	for _, kind := range []string{"admin", "client"} {
		for email, words := range map[string]string{"right": "wrong", "none": "", "gone": password, "off": password, "unknown": password} {
			answer := c.With("").Do("POST", "/auth/key", loginOf(kind, email+"@"+kind, words), "X-Request-Id", "one").Want(401)
			texts = append(texts, answer.Text)
		}
	}
	for _, text := range texts {
		if text != texts[0] {
			t.Errorf("answered %s and %s", text, texts[0])
		}
	}
	producttest.Drain(t, p)
	testkit.Execute(t, p.Databases[identity.Name], "UPDATE unknown_name SET minute = minute - interval '1 minute'")
	testkit.Eventually(t, "logins by unknown names are logged", func() bool {
		return len(testkit.Decode[[]struct{ ID int64 }](c.Do("GET", "/log?type=auth.login.refused", nil).Want(200))) > 0
	})
	producttest.Drain(t, p)
	var known, unknown int
	err := p.Databases[system.Name].QueryRow(t.Context(), "SELECT count(*) FILTER (WHERE type LIKE '%.password.refused'), count(*) FILTER (WHERE type = 'auth.login.refused') FROM log").
		Scan(&known, &unknown)
	if err != nil || known != 6 || unknown == 0 {
		t.Errorf("%d refused logins of known accounts are logged, and %d times some by unknown names: %v", known, unknown, err)
	}
}

// Who locks somebody out does so where he comes from himself, and not where the other one usually is.
func TestLockedOut(t *testing.T) { producttest.Together(t, testLockedOut) }

func testLockedOut(t *testing.T, _ *product.Product, c *testkit.Client) {
	newPerson(t, c, "client", "ben@example.com")
	for _, name := range []string{"ben@example.com", "nobody@example.com"} {
		var compared, locked atomic.Int32
		var all sync.WaitGroup
		for range 32 {
			all.Go(func() {
				switch answer := c.With("").Do("POST", "/auth/key", loginOf("client", name, "wrong")); answer.Status {
				case 401:
					compared.Add(1)
				case 429:
					locked.Add(1)
				default:
					t.Errorf("answered %d: %s", answer.Status, answer.Text)
				}
			})
		}
		all.Wait()
		if compared.Load() != 5 || locked.Load() != 27 {
			t.Errorf("%d guesses at %s were compared", compared.Load(), name)
		}
	}
	c.With("").Do("POST", "/auth/key", loginOf("client", "ben@example.com", password)).Want(429)
}

// Who acts for a client has a session of its own kind, that ends with what it was made with.
func TestActing(t *testing.T) { both(t, testActing) }

func testActing(t *testing.T, p *product.Product, c *testkit.Client) {
	shop := c.Do("POST", "/integration", `{"name": "shop"}`).Want(200).ID()
	c.Do("PATCH", path("/integration/%d/permission", shop), `{"users": {"clients": {"read": true, "write": true}}}`).Want(200)
	key := testkit.Decode[keys.APIKey](
		c.Do("POST", "/auth/key", path(`{"name": "shop", "owner": {"url": "/integration/%d"}}`, shop)).Want(200),
	)
	integration := c.With(key.Key)
	mine := integration.Do("POST", "/client", order("mine@example.com")).Want(200).ID()
	others := newPerson(t, c, "client", "others@example.com")
	act := func(c *testkit.Client, owner string) *testkit.Answer {
		return c.Do("POST", "/auth/key", map[string]any{"owner": map[string]any{"url": owner}})
	}
	act(integration, path("/client/%d", others)).Want(403)
	act(integration, "/client/999").WantErrors("/owner/url", "not_found")
	act(c, path("/integration/%d", shop)).Want(403)
	other, _ := newAdmin(t, c, "other", `{}`)
	act(c, path("/admin/%d", other)).Want(403)
	session := testkit.Decode[keys.APIKey](act(integration, path("/client/%d", mine)).Want(200))
	as := c.With(session.Key)
	self := path("/client/%d", mine)
	as.Do("GET", self, nil).Want(200)
	as.Do("PATCH", self, `{"first": "Bert"}`).Want(200)
	as.Do("POST", "/auth/key", `{"name": "mine"}`).Want(403)
	act(as, self).Want(403)
	as.Do("PATCH", self, `{"verify": {"require": true}}`).Want(403)
	as.Do("PATCH", self, `{"email": "other@example.com"}`).Want(403)
	as.Do("POST", self+"/super", `{"client_email": "others@example.com"}`).Want(403)
	as.Do("DELETE", "/auth/session", nil).Want(403)
	if keys := testkit.Decode[[]keys.APIKey](c.Do("GET", path("/auth/key?owner=/client/%d", mine), nil).Want(200)); len(keys) != 0 {
		t.Errorf("acting sessions are listed among keys: %+v", keys)
	}
	as.Do("POST", "/auth/key", `{}`).Want(200)
	producttest.Drain(t, p)
	if log := c.Do("GET", "/log?type=client.edited", nil).Want(200); !strings.Contains(log.Text, "by shop") {
		t.Errorf("logged as %s", log.Text)
	}
	for range 3 {
		act(integration, self).Want(200)
	}
	producttest.Drain(t, p)
	if items := testkit.Decode[[]struct{ ID int64 }](c.Do("GET", "/log?type=auth.session.began", nil).Want(200)); len(items) != 1 {
		t.Errorf("%d items say that an integration acted", len(items))
	}
	c.Do("PATCH", path("/integration/%d/permission", shop), `{"users": {"clients": {"read": true, "write": false}}}`).Want(200)
	forgotten()
	as.Do("GET", self, nil).Want(401)
	c.Do("PATCH", path("/integration/%d/permission", shop), `{"users": {"clients": {"read": true, "write": true}}}`).Want(200)
	forgotten()
	as.Do("GET", self, nil).Want(200)
	c.Do("DELETE", path("/auth/key/%d", key.ID), nil).Want(200)
	forgotten()
	as.Do("GET", self, nil).Want(401)
}
