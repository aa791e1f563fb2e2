package product_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/runtime/peers"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/gateway"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pool"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/syncbuf"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/system"
	"github.com/ironplane/ironplane/services/system/setting"
)

// settingOf is a setting as its group shows it.
func settingOf(t *testing.T, c *testkit.Client, slug string) setting.Setting {
	t.Helper()
	for _, group := range testkit.Decode[[]setting.SettingGroup](c.Do("GET", "/setting-group", nil).Want(200)) {
		for _, s := range group.Settings {
			if s.Slug == slug {
				return s
			}
		}
	}
	t.Fatalf("there is no setting %s", slug)
	return setting.Setting{}
}

// choose sets a setting.
func choose(t *testing.T, c *testkit.Client, slug string, value any) {
	t.Helper()
	c.Do("PATCH", path("/system/setting/%d", settingOf(t, c, slug).ID), map[string]any{"value": value}).Want(200)
}

// The settings that processes go by are seeded, each with the default that a process has that never heard of it.
func TestSettingsAreSeeded(t *testing.T) {
	t.Parallel()
	_, c := producttest.Start(t)
	for _, s := range []settings.Integer{settings.PasswordLength, settings.KeysPerOwner, settings.KeyInQuery, settings.VerifyAdmins, settings.VerifyPasskeys, settings.OwnerRate, settings.OwnerBurst, settings.OwnerConcurrency,
		settings.AddressRate, settings.AddressBurst, settings.AddressConcurrency, settings.ClientEmails, settings.LogDays,
		settings.InstallWait, settings.InstallBoot, settings.InstallTime} {
		if seeded := settingOf(t, c, s.Slug); seeded.Default != fmt.Sprint(s.Default) || seeded.Value == nil {
			t.Errorf("%s is seeded as %+v, and processes take %d for its default", s.Slug, seeded, s.Default)
		}
	}
	if seeded := settingOf(t, c, settings.SiteName.Slug); seeded.Default != settings.SiteName.Default || seeded.Value != nil {
		t.Errorf("%+v", seeded)
	}
}

func TestSettings(t *testing.T) { both(t, testSettings) }

func testSettings(t *testing.T, p *product.Product, c *testkit.Client) {
	before := c.Do("GET", "/setting-group/2", nil).Want(200)
	group := testkit.Decode[setting.SettingGroup](before)
	length := group.Settings[0]
	if group.Name != "Security" || length.Slug != "security.password_length" || length.Text != "12" || *length.Value != 12 ||
		length.Type != "Text" ||
		*length.Validator != "integer|min:8|max:128" {
		t.Fatalf("%+v", group)
	}
	edited := testkit.Decode[setting.SettingGroup](
		c.Do("PATCH", "/setting-group/2", `{"settings": [{"id": 5, "value": "14"}, {"slug": "security.key_in_query", "value": 1}, {"slug": "security.keys_per_owner", "text": "7"}]}`).
			Want(200),
	)
	if got := []int64{*edited.Settings[0].Value, *edited.Settings[1].Value, *edited.Settings[2].Value}; !slices.Equal(got, []int64{14, 7, 1}) {
		t.Errorf("%v", got)
	}
	c.Do("PATCH", "/setting-group/2", `{"settings": []}`, "If-Match", before.Header.Get("ETag")).Want(412)
	one := c.Do("GET", "/system/setting/5", nil).Want(200)
	c.Do("PATCH", "/setting-group/2", one.Text, "If-Match", "*").Want(200) // which says nothing of settings
	c.Do("PATCH", "/setting-group/2", edited).Want(200)                    // read and sent back
	if now := c.Do("GET", "/system/setting/5", nil).Header.Get("ETag"); now != one.Header.Get("ETag") {
		t.Errorf("what was sent back changed the setting from %s to %s", one.Header.Get("ETag"), now)
	}
	// Of value and text, the one counts that differs; null is the default.
	for _, step := range []struct{ sent, want string }{{`{"value": 14, "text": "15"}`, "15"}, {`{"value": 16, "text": "15"}`, "16"}, {`{}`, "16"}, {`{"value": null}`, "12"}, {`{"value": "20"}`, "20"}, {`{"text": null}`, "12"}} {
		if got := testkit.Decode[setting.Setting](c.Do("PATCH", "/system/setting/5", step.sent).Want(200)); got.Text != step.want {
			t.Errorf("%s makes it %q, want %q", step.sent, got.Text, step.want)
		}
	}
	c.Do("PATCH", "/setting-group/2", `{"settings": [{"id": 7}]}`).Want(200)
	if got := settingOf(t, c, "security.key_in_query"); *got.Value != 0 {
		t.Errorf("%+v", got)
	}

	for sent, wrong := range map[string][2]string{
		`{"settings": [{"id": 5, "value": 7}]}`:                                                    {"/settings/0/value", "out_of_range"},
		`{"settings": [{"id": 5, "value": 20}, {"id": 6, "text": "x"}]}`:                           {"/settings/1/text", "type"},
		`{"settings": [{"id": 5, "value": "012"}]}`:                                                {"/settings/0/value", "type"},
		`{"settings": [{"id": 7, "value": 2}]}`:                                                    {"/settings/0/value", "invalid"},
		`{"settings": [{"id": 8, "value": 2}]}`:                                                    {"/settings/0", "not_found"},
		`{"settings": [{"id": 5, "slug": "security.key_in_query", "value": 9}]}`:                   {"/settings/0", "not_found"},
		`{"settings": [{"value": 9}]}`:                                                             {"/settings/0", "not_found"},
		`{"settings": [{"id": 5, "value": 9}, {"slug": "security.password_length", "value": 10}]}`: {"/settings/1", "disagrees"},
		`{"settings": [{"id": "x"}]}`:                                                              {"/settings", "type"},
		`{"settings": [5]}`:                                                                        {"/settings", "type"},
		`{"settings": {"id": 5}}`:                                                                  {"/settings", "type"},
	} {
		c.Do("PATCH", "/setting-group/2", sent).WantErrors(wrong[0], wrong[1])
	}
	if got := settingOf(t, c, "security.password_length"); got.Text != "12" {
		t.Errorf("a request that was refused left %+v", got)
	}
	c.Do("PATCH", "/setting-group/1", `{"settings": [{"slug": "site_name", "value": "two\nlines"}]}`).
		WantErrors("/settings/0/value", "invalid")
	c.Do("PATCH", "/setting-group/1", `{"settings": [{"slug": "api_url", "value": "https://evil.example"}]}`).
		WantErrors("/settings/0/value", "read_only")
	c.Do("PATCH", "/system/setting/1", map[string]string{"value": strings.Repeat("x", 101)}).WantErrors("/value", "out_of_range")

	// Who has not the permission reads the group Site.
	_, nobody := newAdmin(t, c, "nobody", `{}`)
	if got := ids(nobody.Do("GET", "/setting-group", nil).Want(200)); !slices.Equal(got, []int64{1}) {
		t.Errorf("who holds nothing is shown the groups %v", got)
	}
	nobody.Do("GET", "/setting-group/1", nil).Want(200)
	nobody.Do("GET", "/setting-group/2", nil).Want(403)
	nobody.Do("PATCH", "/setting-group/1", `{"settings": []}`).Want(403)
	nobody.Do("GET", "/system/setting/1", nil).Want(403)

	producttest.Drain(t, p)
	items := testkit.Decode[[]system.LogItem](
		c.Do("GET", "/log?type=system.setting.edited&user=/admin/1&target_type=system/setting&target_id=6", nil).Want(200),
	)
	if len(items) != 1 || !strings.Contains(items[0].Desc, "security.keys_per_owner") {
		t.Errorf("%+v", items)
	}
}

func TestSiteName(t *testing.T) { both(t, testSiteName) }

func testSiteName(t *testing.T, _ *product.Product, c *testkit.Client) {
	choose(t, c, "site_name", `Hosting & "Söhne" <b>`)
	testkit.Eventually(t, "the API's documentation bears the name", func() bool {
		return strings.Contains(c.With("").Do("GET", "/-/docs", nil).Want(200).Text, "<title>Hosting &amp; &#34;Söhne&#34; &lt;b&gt;</title>")
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
	asked := func() int { return c.With("").Do("GET", "/port-speed?key="+key, nil).Status }
	if got := asked(); got != 401 {
		t.Errorf("%d", got)
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
		ask  func() *testkit.Answer
	}{
		{"owner", func() *testkit.Answer { return anna.Do("GET", "/port-speed", nil) }},
		{"address", func() *testkit.Answer { return c.With("").Do("GET", "/browser-details", nil) }},
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

// someRefused asks many times at once, and tells whether a limit was met.
func someRefused(ask func() *testkit.Answer) bool {
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
	for name, ask := range map[string]func() *testkit.Answer{
		"owner":   func() *testkit.Answer { return anna.Do("GET", "/port-speed", nil) },
		"address": func() *testkit.Answer { return c.With("").Do("GET", "/browser-details", nil) },
	} {
		choose(t, c, "limits."+name+"_concurrency", 1)
		testkit.Eventually(t, "one request of an "+name+" can be under way", func() bool { return someRefused(ask) })
		choose(t, c, "limits."+name+"_concurrency", nil)
	}
}

func TestLogDays(t *testing.T) {
	t.Parallel()
	i := newDatabases(t)
	db, err := pool.Open(t.Context(), i.urls[system.Name].Reveal(), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Execute(
		t,
		db.DB,
		`INSERT INTO change (type, kind, action, targets, at) VALUES ('part.edited', 'part', 'edited', '[]', now() - interval '40 days')`,
	)
	db.Close()
	if err := i.start(); err != nil {
		t.Fatal(err)
	}
	producttest.Drain(t, i.product) // the old item is the first one
	i.welcome()
	old := func() bool {
		return len(ids(i.admin.Do("GET", "/log?until="+time.Now().AddDate(0, 0, -30).UTC().Format(time.RFC3339), nil).Want(200))) > 0
	}
	choose(t, i.admin, "log.days", 50)
	if !old() {
		t.Fatal("there is no old item")
	}
	choose(t, i.admin, "log.days", 30)
	testkit.Eventually(t, "the log is cut", func() bool { return !old() })
}

// A variable of the environment counts at the first start, and then what is set.
func TestVariablesOfSettings(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	start := func(v settings.Variables) (lines string, err error) {
		var log syncbuf.Buffer
		i.product, err = product.Open(
			t.Context(),
			i.urls,
			i.masterKey,
			service.Settings{AdminURL: "https://panel.example.com"},
			v,
			testkit.Redis(t),
			gateway.Config{},
			slog.New(slog.NewTextHandler(&log, nil)),
		)
		if err == nil {
			i.admin = testkit.NewClient(t, i.product.Gateway).With(i.key)
		}
		return log.String(), err
	}
	i.product.Close()
	lines, err := start(settings.Variables{OwnerRate: "9", LogDays: "5"})
	if err != nil || !strings.Contains(lines, "IRONPLANE_OWNER_RATE is ignored") ||
		settingOf(t, i.admin, "limits.owner_rate").Text != "1000000" {
		t.Fatal(lines, err)
	}
	if got := settingOf(t, i.admin, "admin_url"); got.Text != "https://panel.example.com" {
		t.Errorf("%+v", got)
	}
	i.product.Close()
	db, err := pool.Open(t.Context(), i.urls[system.Name].Reveal(), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Execute(t, db.DB, "UPDATE setting SET fresh = true, chosen = NULL WHERE slug = 'log.days'") // as after an upgrade
	db.Close()
	if _, err := start(
		settings.Variables{LogDays: "soon"},
	); err == nil ||
		!strings.Contains(err.Error(), `IRONPLANE_LOG_DAYS is "soon": it must be an integer`) {
		t.Fatalf("%v", err)
	}
	if lines, err := start(
		settings.Variables{LogDays: "5"},
	); err != nil || strings.Contains(lines, "ignored") ||
		settingOf(t, i.admin, "log.days").Text != "5" {
		t.Error(lines, err)
	}
}

// A gateway that starts while system is away goes by the last settings.
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
		t.Error("a gateway that starts while system is away goes by the defaults")
	}
}
