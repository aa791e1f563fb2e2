package product_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/clients"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/keys"
	"github.com/ironplane/ironplane/services/system/mail"
)

// Keys are good from where they are to be, it is known when they were used, and their owners are told in time that they end.
func TestKeyUse(t *testing.T) { both(t, testKeyUse) }

func testKeyUse(t *testing.T, p *product.Product, c *testkit.Client) {
	newPerson(t, c, "admin", "anna@example.com")
	_, anna := signIn(t, c, loginOf("admin", "anna@example.com", password))
	make := func(c *testkit.Client, body string) keys.APIKey {
		t.Helper()
		return testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", body).Want(200))
	}
	far := make(anna, `{"name": "far", "allowed_cidrs": ["192.0.2.7/24", "2001:db8::1"]}`)
	if strings.Join(far.Networks, " ") != "192.0.2.0/24 2001:db8::1/128" {
		t.Errorf("kept as %v", far.Networks)
	}
	c.With(far.Key).Do("GET", "/auth/key/current", nil).WantDetail(403, "The key is not good from the address 127.0.0.1.")
	anna.Do("PATCH", path("/auth/key/%d", far.ID), `{"name": "far", "allowed_cidrs": ["127.0.0.0/8"]}`).Want(200)
	forgotten()
	near := c.With(far.Key)
	tag := near.Do("GET", "/auth/key/current", nil).Want(200).Header.Get("ETag")
	if heir := make(near, `{"name": "heir"}`); strings.Join(heir.Networks, " ") != "127.0.0.0/8" {
		t.Errorf("a key that was made with it is good from %v", heir.Networks)
	}
	near.Do("POST", "/auth/key", `{"name": "wider", "allowed_cidrs": ["0.0.0.0/0"]}`).WantErrors("/allowed_cidrs", "out_of_range")
	near.Do("PATCH", path("/auth/key/%d", far.ID), `{"name": "far", "allowed_cidrs": ["0.0.0.0/0"]}`).
		WantErrors("/allowed_cidrs", "out_of_range")
	make(near, `{"name": "narrower", "allowed_cidrs": ["127.0.0.1"]}`)
	for _, wrong := range []string{"x", "192.0.2.0/33", "::ffff:192.0.2.0/120", "fe80::1%eth0"} {
		anna.Do("POST", "/auth/key", map[string]any{"name": "wrong", "allowed_cidrs": []string{wrong}}).WantErrors("/allowed_cidrs", "invalid")
	}

	testkit.Eventually(t, "it is known when a key was used", func() bool {
		return testkit.Decode[keys.APIKey](c.Do("GET", path("/auth/key/%d", far.ID), nil).Want(200)).LastUsed != nil
	})
	if now := near.Do("GET", "/auth/key/current", nil).Want(200).Header.Get("ETag"); now != tag {
		t.Errorf("to be used changes a key: %s, %s", tag, now)
	}
	testkit.Execute(t, p.Databases[identity.Name], "UPDATE api_key SET created_at = now() - interval '100 days'")
	testkit.Execute(t, p.Databases[identity.Name], "UPDATE api_key SET last_used_at = now() - interval '91 days' WHERE name = 'heir'")
	testkit.Execute(t, p.Databases[identity.Name], "UPDATE api_key SET last_used_at = now() - interval '89 days' WHERE name = 'narrower'")
	unused := testkit.Decode[[]keys.APIKey](c.Do("GET", "/auth/key?unused_days=90&owner=/admin/2", nil).Want(200))
	if len(unused) != 1 || unused[0].Name != "heir" {
		t.Errorf("unused are %+v", unused)
	}
	c.Do("GET", "/auth/key?unused_days=0", nil).Want(400)

	for name, left := range map[string]time.Duration{"ends soon": 3 * 24 * time.Hour, "ends later": 30 * 24 * time.Hour} {
		make(anna, testkit.JSON(map[string]any{"name": name, "expires_at": time.Now().Add(left).Unix()}))
	}
	testkit.Execute(t, p.Databases[identity.Name], "UPDATE api_key SET created_at = now() - interval '100 days' WHERE name LIKE 'ends%'")
	testkit.Eventually(t, "the owner is told of a key that ends", func() bool {
		told := 0
		for _, m := range testkit.Decode[[]mail.EmailMessage](c.Do("GET", "/email/message", nil).Want(200)) {
			if m.To.Email == "anna@example.com" &&
				(m.Template == "key-expires" && strings.Contains(m.Text, "ends soon") || m.Template == "account-changed" && strings.Contains(m.Text, "heir")) {
				told++
			}
			if m.Template == "key-expires" && !strings.Contains(m.Text, "ends soon") {
				t.Fatalf("told of %s", m.Text)
			}
		}
		return told == 2
	})
}

// A password that was hashed with less work is hashed anew when it is typed.
func TestRehash(t *testing.T) { producttest.Together(t, testRehash) }

func testRehash(t *testing.T, p *product.Product, c *testkit.Client) {
	const less = `$argon2id$v=19$m=1024,t=1,p=1$MDEyMzQ1Njc4OWFiY2RlZg$Orm+6mp8EkatOJLsACOGU1BTK8LKqU7my/GZMsG592A` // of password
	for kind, service := range map[string]string{"admin": identity.Name, "client": clients.Name} {
		newPerson(t, c, kind, "one@example.com")
		testkit.Execute(t, p.Databases[service], "UPDATE "+kind+" SET password_hash = '"+less+"' WHERE email = 'one@example.com'")
		c.With("").Do("POST", "/auth/key", loginOf(kind, "one@example.com", "another one")).Want(401)
		signIn(t, c, loginOf(kind, "one@example.com", password))
		testkit.Eventually(t, "the password of the "+kind+" is hashed anew", func() bool {
			var hash string
			if err := p.Databases[service].QueryRow(t.Context(), "SELECT password_hash FROM "+kind+" WHERE email = 'one@example.com'").
				Scan(&hash); err != nil {
				t.Fatal(err)
			}
			return strings.Contains(hash, "$m=47104,") && hash != less
		})
		signIn(t, c, loginOf(kind, "one@example.com", password))
	}
}
