package identity_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/account"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/mail"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/keys"
)

// A key works only from its networks, shows when it was used last, and its owner is warned before it expires.
func TestKeyUse(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	s.newPerson("admin", "anna@example.com")
	_, anna := signIn(t, c, loginBody("admin", "anna@example.com", password))
	createKey := func(c *testkit.Client, body string) keys.APIKey {
		t.Helper()
		return testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", body).Want(200))
	}
	far := createKey(anna, `{"name": "far", "allowed_cidrs": ["198.51.100.7/24", "2001:db8::1"]}`)
	if strings.Join(far.Networks, " ") != "198.51.100.0/24 2001:db8::1/128" {
		t.Errorf("got the networks %v, want 198.51.100.0/24 and 2001:db8::1/128", far.Networks)
	}
	c.WithKey(far.Key).Do("GET", "/auth/key/current", nil).Want(401)
	anna.Do("PATCH", path("/auth/key/%d", far.ID), `{"name": "far", "allowed_cidrs": ["192.0.2.0/24"]}`).Want(200)
	near := c.WithKey(far.Key)
	tag := near.Do("GET", "/auth/key/current", nil).Want(200).Header.Get("ETag")
	if heir := createKey(near, `{"name": "heir"}`); strings.Join(heir.Networks, " ") != "192.0.2.0/24" {
		t.Errorf("got a new key with the networks %v, want its maker's 192.0.2.0/24", heir.Networks)
	}
	near.Do("POST", "/auth/key", `{"name": "wider", "allowed_cidrs": ["0.0.0.0/0"]}`).WantErrors("/allowed_cidrs", "out_of_range")
	near.Do("PATCH", path("/auth/key/%d", far.ID), `{"name": "far", "allowed_cidrs": ["0.0.0.0/0"]}`).
		WantErrors("/allowed_cidrs", "out_of_range")
	createKey(near, `{"name": "narrower", "allowed_cidrs": ["192.0.2.7"]}`)
	for _, network := range []string{"x", "192.0.2.0/33", "::ffff:192.0.2.0/120", "fe80::1%eth0"} {
		anna.Do("POST", "/auth/key", map[string]any{"name": "wrong", "allowed_cidrs": []string{network}}).WantErrors("/allowed_cidrs", "invalid")
	}

	gateway := s.Peers(principal.Gateway)
	testkit.Eventually(t, "the key's last use is stored", func() bool {
		testkit.Must(t, gateway.Ask(t.Context(), identity.Name, path("%s?keys=%d", keycache.UsagePath, far.ID), new(any)))
		return testkit.Decode[keys.APIKey](c.Do("GET", path("/auth/key/%d", far.ID), nil).Want(200)).LastUsed != nil
	})
	if now := near.Do("GET", "/auth/key/current", nil).Want(200).Header.Get("ETag"); now != tag {
		t.Errorf("after a use: got the ETag %s, want %s", now, tag)
	}
	testkit.Execute(t, s.DB, "UPDATE api_key SET created_at = now() - interval '100 days'")
	testkit.Execute(t, s.DB, "UPDATE api_key SET last_used_at = now() - interval '91 days' WHERE name = 'heir'")
	testkit.Execute(t, s.DB, "UPDATE api_key SET last_used_at = now() - interval '89 days' WHERE name = 'narrower'")
	unused := testkit.Decode[[]keys.APIKey](c.Do("GET", "/auth/key?unused_days=90&owner=/admin/2", nil).Want(200))
	if len(unused) != 1 || unused[0].Name != "heir" {
		t.Errorf("got the unused keys %+v, want only heir", unused)
	}
	c.Do("GET", "/auth/key?unused_days=0", nil).Want(400)

	for name, left := range map[string]time.Duration{"ends soon": 3 * 24 * time.Hour, "ends later": 30 * 24 * time.Hour} {
		createKey(anna, testkit.JSON(map[string]any{"name": name, "expires_at": time.Now().Add(left).Unix()}))
	}
	testkit.Execute(t, s.DB, "UPDATE api_key SET created_at = now() - interval '100 days' WHERE name LIKE 'ends%'")
	testkit.Eventually(t, "the owner is warned of the key's end", func() bool {
		mails := 0
		for _, m := range s.System.Mails("anna@example.com") {
			switch is := m.Opened.(type) {
			case mail.KeyExpires:
				if mails++; is.Key != "ends soon" {
					t.Fatalf("got a mail about %+v, want one about the key ends soon", is)
				}
			case mail.AccountChanged:
				if strings.Contains(strings.Join(is.Changes, " "), "heir") {
					mails++
				}
			}
		}
		return mails == 2
	})
}

// A login rehashes a password whose hash has outdated parameters.
func TestRehash(t *testing.T) {
	t.Parallel()
	s, c := newFixtureWith(t, service.Settings{Tuning: service.Tuning{PasswordMemory: account.DefaultMemory}})
	for _, kind := range []string{"admin", "client"} {
		id := s.newPerson(kind, "one@example.com")
		stored := func() (text string) {
			if kind == "client" {
				return s.Clients.Account(id).Hash
			}
			testkit.Must(t, s.DB.QueryRow(t.Context(), "SELECT password_hash FROM admin WHERE id = $1", id).Scan(&text))
			return text
		}
		c.WithKey("").Do("POST", "/auth/key", loginBody(kind, "one@example.com", "another one")).Want(401)
		if got := stored(); got != hash {
			t.Errorf("a wrong password is hashed again: got %s, want %s", got, hash)
		}
		signIn(t, c, loginBody(kind, "one@example.com", password))
		testkit.Await(t, "the password of the "+kind+" is rehashed", stored, func(got string) bool {
			return strings.Contains(got, "$m=47104,") && got != hash
		})
		signIn(t, c, loginBody(kind, "one@example.com", password))
	}
}
