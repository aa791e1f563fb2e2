package product_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ironplane/ironplane/pkg/runtime/peers"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/gateway"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/system/setting"
)

// settingOf returns a setting as its group shows it.
func settingOf(t *testing.T, c *testkit.Client, slug string) setting.Setting {
	t.Helper()
	for _, group := range testkit.Decode[[]setting.SettingGroup](c.Do("GET", "/setting-group", nil).Want(200)) {
		for _, s := range group.Settings {
			if s.Slug == slug {
				return s
			}
		}
	}
	t.Fatalf("got no setting %s, want one", slug)
	return setting.Setting{}
}

// choose sets a setting.
func choose(t *testing.T, c *testkit.Client, slug string, value any) {
	t.Helper()
	c.Do("PATCH", path("/system/setting/%d", settingOf(t, c, slug).ID), map[string]any{"value": value}).Want(200)
}

func TestSiteName(t *testing.T) { both(t, testSiteName) }

func testSiteName(t *testing.T, _ *product.Product, c *testkit.Client) {
	choose(t, c, "site_name", `Hosting & "Söhne" <b>`)
	testkit.Eventually(t, "the API's documentation bears the name", func() bool {
		return strings.Contains(c.WithKey("").Do("GET", "/-/docs", nil).Want(200).Text, "<title>Hosting &amp; &#34;Söhne&#34; &lt;b&gt;</title>")
	})
}

func TestPasswordLength(t *testing.T) { both(t, testPasswordLength) }

func testPasswordLength(t *testing.T, _ *product.Product, c *testkit.Client) {
	const password = "x7#kQ9!vB2m" // 11 characters
	admin := map[string]any{"username": "anna", "email": "anna@example.com", "password": password}
	c.Do("POST", "/admin", admin).WantErrors("/password", "too_short")
	choose(t, c, "security.password_length", 11)
	testkit.Eventually(t, "a shorter password is accepted", func() bool { return c.Do("POST", "/admin", admin).Status == 200 })
}

func TestKeysPerOwnerIsASetting(t *testing.T) { both(t, testKeysPerOwnerIsASetting) }

func testKeysPerOwnerIsASetting(t *testing.T, _ *product.Product, c *testkit.Client) {
	choose(t, c, "security.keys_per_owner", 1)
	testkit.Eventually(t, "no key more can be made", func() bool { return c.Do("POST", "/auth/key", `{"name": "second"}`).Status == 422 })
	choose(t, c, "security.keys_per_owner", 0)
	testkit.Eventually(t, "any number of keys can be made", func() bool {
		return c.Do("POST", "/auth/key", `{"name": "third"}`).Status == 200
	})
}

func TestKeyInQuery(t *testing.T) { both(t, testKeyInQuery) }

func testKeyInQuery(t *testing.T, _ *product.Product, c *testkit.Client) {
	key := newKey(t, c, "query")
	asked := func() int { return c.WithKey("").Do("GET", "/port-speed?key="+key, nil).Status }
	if got := asked(); got != 401 {
		t.Errorf("got %d, want 401", got)
	}
	choose(t, c, "security.key_in_query", 1)
	testkit.Eventually(t, "a key in the query counts", func() bool { return asked() == 200 })
	choose(t, c, "security.key_in_query", 0)
	testkit.Eventually(t, "a key in the query counts no more", func() bool { return asked() == 401 })
}

func TestLimitsAreSettings(t *testing.T) { both(t, testLimitsAreSettings) }

func testLimitsAreSettings(t *testing.T, _ *product.Product, c *testkit.Client) {
	_, anna := newAdmin(t, c, "anna", `{"network": {"switches": {"read": true}}}`)
	for _, limit := range []struct {
		name string
		ask  func() *testkit.Response
	}{
		{"owner", func() *testkit.Response { return anna.Do("GET", "/port-speed", nil) }},
		{"address", func() *testkit.Response { return c.WithKey("").Do("GET", "/browser-details", nil) }},
	} {
		choose(t, c, "limits."+limit.name+"_rate", 7)
		choose(t, c, "limits."+limit.name+"_burst", 70)
		testkit.Eventually(t, "the limit of an "+limit.name+" is the one that is set", func() bool {
			return limit.ask().Header.Get("RateLimit-Policy") == fmt.Sprintf("%q;q=70;w=10", limit.name)
		})
		testkit.Eventually(t, "the limit of an "+limit.name+" is met", func() bool { return someRefused(limit.ask) })
		choose(t, c, "limits."+limit.name+"_rate", nil)
		choose(t, c, "limits."+limit.name+"_burst", nil)
	}
}

// someRefused sends many requests at once, and reports whether a limit refused one.
func someRefused(ask func() *testkit.Response) bool {
	var refused atomic.Bool
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			if ask().Status == http.StatusTooManyRequests {
				refused.Store(true)
			}
		})
	}
	callers.Wait()
	return refused.Load()
}

func TestConcurrencyIsASetting(t *testing.T) { both(t, testConcurrencyIsASetting) }

func testConcurrencyIsASetting(t *testing.T, p *product.Product, c *testkit.Client) {
	_, anna := newAdmin(t, c, "anna", `{"network": {"switches": {"read": true, "write": true}}}`)
	for name, ask := range map[string]func() *testkit.Response{
		"owner":   func() *testkit.Response { return anna.Do("GET", "/port-speed", nil) },
		"address": func() *testkit.Response { return c.WithKey("").Do("GET", "/browser-details", nil) },
	} {
		choose(t, c, "limits."+name+"_concurrency", 1)
		testkit.Eventually(t, "the limit of one request of an "+name+" is applied", func() bool { return someRefused(ask) })
		choose(t, c, "limits."+name+"_concurrency", nil)
	}
}

// A gateway that starts while the system service is down uses the last known settings.
func TestGatewayStartsWithoutSystem(t *testing.T) {
	t.Parallel()
	client := testkit.Redis(t)
	p, c := producttest.StartOn(t, client)
	choose(t, c, "site_name", "Last heard")
	testkit.Eventually(t, "identity hears of it", func() bool {
		var name *string
		err := p.Databases[identity.Name].QueryRow(t.Context(), "SELECT values->>'site_name' FROM setting_copy").Scan(&name)
		return err == nil && name != nil && *name == "Last heard"
	})
	services := map[string]http.Handler{identity.Name: p.Services[identity.Name]}
	g := p.NewGateway(gateway.Config{}, services, peers.New(principal.Gateway, services), client, slog.New(slog.DiscardHandler))
	defer g.Close()
	if page := testkit.NewClient(t, g).Do("GET", "/-/docs", nil).Want(200).Text; !strings.Contains(page, "<title>Last heard</title>") {
		t.Errorf("got the page %s, want the title Last heard", page)
	}
}

func TestGuessablePasswords(t *testing.T) { both(t, testGuessablePasswords) }

// Nobody can set a guessable password by any way. The site's names are known to be guessed.
func testGuessablePasswords(t *testing.T, _ *product.Product, c *testkit.Client) {
	choose(t, c, "site_name", "Ostwind Hosting")
	testkit.Eventually(t, "the site's name is known to identity", func() bool {
		return c.Do("POST", "/admin", `{"email": "ed@example.com", "password": "ostwindhosting26"}`).Status == 422
	})
	_, shop := newIntegration(t, c, "shop", `{"users": {"clients": {"read": true, "write": true}}}`)
	admin := c.Do("POST", "/admin", `{"email": "ann@example.com", "password": ""}`).Want(200).ID()
	client := shop.Do("POST", "/client", order("eve@example.com")).Want(200).ID()
	for _, password := range []string{"ostwindhosting26", "Winter2025!!", "Bundesliga2026", "correcthorsebatterystaple"} {
		body := order("new@example.com", "password", password)
		for _, response := range []*testkit.Response{
			c.Do("POST", "/admin", map[string]any{"email": "new@example.com", "password": password}),
			c.Do("PATCH", path("/admin/%d", admin), map[string]any{"password": password}),
			c.Do("POST", "/client", body),
			shop.Do("POST", "/client", body),
			shop.Do("PATCH", path("/client/%d", client), map[string]any{"password": password}),
		} {
			response.WantErrors("/password", "too_weak")
		}
	}
	shop.Do("PATCH", path("/client/%d", client), `{"password": "seven grey herons at dusk"}`).Want(200)
}
