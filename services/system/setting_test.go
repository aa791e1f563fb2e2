package system_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/syncbuf"
	"github.com/ironplane/ironplane/services/system"
	"github.com/ironplane/ironplane/services/system/setting"
)

// findSetting returns a setting as its group shows it.
func findSetting(t testing.TB, c *testkit.Client, slug string) setting.Setting {
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

// setSetting sets a setting.
func setSetting(t testing.TB, c *testkit.Client, slug string, value any) {
	t.Helper()
	c.Do("PATCH", fmt.Sprintf("/system/setting/%d", findSetting(t, c, slug).ID), map[string]any{"value": value}).Want(200)
}

// itemIDs returns the ids of the items in a response.
func itemIDs(answer *testkit.Response) (ids []int64) {
	for _, item := range testkit.Decode[[]struct{ ID int64 }](answer) {
		ids = append(ids, item.ID)
	}
	return ids
}

// All settings of processes are seeded, with the same defaults as in the processes.
func TestSettingsAreSeeded(t *testing.T) {
	t.Parallel()
	c := run(t, service.Settings{}).Client
	for _, s := range []settings.Integer{settings.PasswordLength, settings.KeysPerOwner, settings.KeyInQuery, settings.VerifyAdmins,
		settings.VerifyPasskeys, settings.OwnerRate, settings.OwnerBurst, settings.OwnerConcurrency,
		settings.AddressRate, settings.AddressBurst, settings.AddressConcurrency, settings.ClientEmails, settings.LogDays,
		settings.Quarantine, settings.InstallWait, settings.InstallBoot, settings.InstallTime} {
		if seeded := findSetting(t, c, s.Slug); seeded.Default != fmt.Sprint(s.Default) || seeded.Value == nil {
			t.Errorf("%s: got %+v, want the default %d and a value", s.Slug, seeded, s.Default)
		}
	}
	if seeded := findSetting(t, c, settings.SiteName.Slug); seeded.Default != settings.SiteName.Default || seeded.Value != nil {
		t.Errorf("got %+v, want the default %s and no value", seeded, settings.SiteName.Default)
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	s := run(t, service.Settings{})
	c := s.Client
	before := c.Do("GET", "/setting-group/2", nil).Want(200)
	group := testkit.Decode[setting.SettingGroup](before)
	length := group.Settings[0]
	if group.Name != "Security" || length.Slug != "security.password_length" || length.Text != "12" || *length.Value != 12 ||
		length.Type != "Text" ||
		*length.Validator != "integer|min:8|max:128" {
		t.Fatalf("got %+v, want Security with a password length of 12", group)
	}
	edited := testkit.Decode[setting.SettingGroup](
		c.Do("PATCH", "/setting-group/2", `{"settings": [{"id": 5, "value": "14"}, {"slug": "security.key_in_query", "value": 1}, {"slug": "security.keys_per_owner", "text": "7"}]}`).
			Want(200),
	)
	if got := []int64{*edited.Settings[0].Value, *edited.Settings[1].Value, *edited.Settings[2].Value}; !slices.Equal(got, []int64{14, 7, 1}) {
		t.Errorf("got %v, want [14 7 1]", got)
	}
	c.Do("PATCH", "/setting-group/2", `{"settings": []}`, "If-Match", before.Header.Get("ETag")).Want(412)
	one := c.Do("GET", "/system/setting/5", nil).Want(200)
	c.Do("PATCH", "/setting-group/2", `{}`, "If-Match", "*").Want(200)
	c.Do("PATCH", "/setting-group/2", one.Text).Want(422) // a setting is no group
	c.Do("PATCH", "/setting-group/2", edited).Want(200)   // the same settings again
	if now := c.Do("GET", "/system/setting/5", nil).Header.Get("ETag"); now != one.Header.Get("ETag") {
		t.Errorf("got the ETag %s, want %s", now, one.Header.Get("ETag"))
	}
	// If both are sent, the one that differs takes precedence. null is the default.
	for _, step := range []struct{ sent, want string }{{`{"value": 14, "text": "15"}`, "15"}, {`{"value": 16, "text": "15"}`, "16"}, {`{}`, "16"}, {`{"value": null}`, "12"}, {`{"value": "20"}`, "20"}, {`{"text": null}`, "12"}} {
		if got := testkit.Decode[setting.Setting](c.Do("PATCH", "/system/setting/5", step.sent).Want(200)); got.Text != step.want {
			t.Errorf("%s: got %q, want %q", step.sent, got.Text, step.want)
		}
	}
	c.Do("PATCH", "/setting-group/2", `{"settings": [{"id": 7}]}`).Want(200)
	if got := findSetting(t, c, "security.key_in_query"); *got.Value != 0 {
		t.Errorf("got %+v, want 0", got)
	}

	for sent, invalid := range map[string][2]string{
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
		c.Do("PATCH", "/setting-group/2", sent).WantErrors(invalid[0], invalid[1])
	}
	if got := findSetting(t, c, "security.password_length"); got.Text != "12" {
		t.Errorf("got %+v after a refusal, want 12", got)
	}
	for _, text := range []string{"two\nlines", "two\u2028lines", "turned \u202eround", "a\tb", "a\u0085b"} {
		c.Do("PATCH", "/setting-group/1", map[string]any{"settings": []any{map[string]string{"slug": "site_name", "value": text}}}).
			WantErrors("/settings/0/value", "invalid")
	}
	c.Do("PATCH", "/setting-group/1", `{"settings": [{"slug": "api_url", "value": "https://evil.example"}]}`).
		WantErrors("/settings/0/value", "read_only")
	c.Do("PATCH", "/system/setting/1", map[string]string{"value": strings.Repeat("x", 101)}).WantErrors("/value", "out_of_range")

	// Without the permission, callers can only read the group Site.
	_, unprivileged := s.addAdmin()
	if got := itemIDs(unprivileged.Do("GET", "/setting-group", nil).Want(200)); !slices.Equal(got, []int64{1}) {
		t.Errorf("got the groups %v without permissions, want [1]", got)
	}
	unprivileged.Do("GET", "/setting-group/1", nil).Want(200)
	unprivileged.Do("GET", "/setting-group/2", nil).Want(403)
	unprivileged.Do("PATCH", "/setting-group/1", `{"settings": []}`).Want(403)
	unprivileged.Do("GET", "/system/setting/1", nil).Want(403)

	items := s.awaitLog("type=system.setting.edited&user=/admin/1&target_type=system/setting&target_id=6", 1)
	if !strings.Contains(items[0].Desc, "security.keys_per_owner") {
		t.Errorf("got %+v, want an item about security.keys_per_owner", items)
	}
}

// A second factor cannot be required while an admin could not sign in with one.
func TestVerifyAdmins(t *testing.T) {
	t.Parallel()
	s := run(t, service.Settings{})
	id := findSetting(t, s.Client, settings.VerifyAdmins.Slug).ID
	at, require := path("/system/setting/%d", id), `{"value": 1}`
	for name, unverified := range map[string]credentials.Unverified{
		"an admin without an authenticator, and no SMTP server": {Any: true},
		"an admin with a password and no address":               {WithoutAddress: true},
	} {
		s.Identity.SetUnverified(unverified)
		answer := s.Do("PATCH", at, require)
		if answer.Status != 422 || !strings.Contains(answer.Text, "unavailable") {
			t.Errorf("%s: got %d %s, want 422 unavailable", name, answer.Status, answer.Text)
		}
	}
	s.Identity.SetAway(true)
	s.Do("PATCH", at, require).Want(503)
	s.Do("PATCH", at, `{"value": 0}`).Want(200) // identity is not asked
	s.Identity.SetAway(false)
	s.Identity.SetUnverified(credentials.Unverified{})
	s.Do("PATCH", "/setting-group/2", fmt.Sprintf(`{"settings": [{"id": %d, "value": 1}]}`, id)).Want(200)
	s.Identity.SetUnverified(credentials.Unverified{WithoutAddress: true})
	s.Do("PATCH", at, require).Want(200) // already required
	var values settings.Values
	testkit.Must(t, s.Peers("gateway").Ask(t.Context(), system.Name, settings.Path, &values))
	if settings.VerifyAdmins.In(values) != 1 {
		t.Errorf("got %v for processes, want 1", values[settings.VerifyAdmins.Slug])
	}
}

func TestLogDays(t *testing.T) {
	t.Parallel()
	s := run(t, service.Settings{Tuning: service.Tuning{PollInterval: 100 * time.Millisecond}}) // the change below wakes no task
	testkit.Execute(
		t,
		s.DB,
		"INSERT INTO change (type, kind, action, targets, at) VALUES ('part.edited', 'part', 'edited', '[]', now() - interval '40 days')",
	)
	s.awaitLog("type=part.edited", 1) // the old item is first
	old := func() bool {
		return len(itemIDs(s.Do("GET", "/log?until="+time.Now().AddDate(0, 0, -30).UTC().Format(time.RFC3339), nil).Want(200))) > 0
	}
	setSetting(t, s.Client, "log.days", 50)
	if !old() {
		t.Fatal("got no old item, want one")
	}
	setSetting(t, s.Client, "log.days", 30)
	testkit.Eventually(t, "the log is cut", func() bool { return !old() })
}

// An environment variable takes effect at the first start. After that, the setting takes precedence.
func TestVariablesOfSettings(t *testing.T) {
	t.Parallel()
	var log syncbuf.Buffer
	s := testkit.Run(t, system.Definition, testkit.ServiceOptions{
		Environment: settings.Variables{OwnerRate: "1000", KeyInQuery: "true"}.NonEmpty(),
		Log:         slog.New(slog.NewTextHandler(&log, nil)),
	})
	if got := findSetting(t, s.Client, "limits.owner_rate").Text; got != "1000" {
		t.Fatalf("at the first start: got %q, want 1000", got)
	}
	if got := findSetting(t, s.Client, "security.key_in_query").Text; got != "1" {
		t.Fatalf("a checkbox at the first start: got %q, want 1", got)
	}
	panel := service.Settings{AdminURL: "https://panel.example.com", APIURL: "https://api.example.com/", Console: "off"}
	s, err := s.Restart(panel, settings.Variables{OwnerRate: "9", LogDays: "5"}.NonEmpty())
	testkit.Must(t, err)
	if got := findSetting(
		t,
		s.Client,
		"limits.owner_rate",
	).Text; got != "1000" ||
		!strings.Contains(log.String(), "variable=IRONPLANE_OWNER_RATE") {
		t.Fatalf("at the second start: got %q, want 1000 and a warning in %s", got, log.String())
	}
	wantPanels := func(admin, client string) {
		t.Helper()
		if got := findSetting(t, s.Client, "admin_url").Text; got != admin {
			t.Errorf("got the panel %q of admins, want %q", got, admin)
		}
		if got := findSetting(t, s.Client, "client_url").Text; got != client {
			t.Errorf("got the panel %q of clients, want %q", got, client)
		}
	}
	wantPanels(panel.AdminURL, "")
	testkit.Execute(t, s.DB, "UPDATE setting SET fresh = true, chosen = NULL WHERE slug = 'log.days'") // as after an upgrade
	for _, invalid := range []struct {
		settings  service.Settings
		variables map[string]string
		want      string
	}{
		{panel, settings.Variables{LogDays: "soon"}.NonEmpty(), `IRONPLANE_LOG_DAYS is "soon", but must be an integer`},
		{service.Settings{APIURL: "api.example.com"}, nil, "IRONPLANE_API_URL"},
		{service.Settings{Console: "maybe"}, nil, `IRONPLANE_CONSOLE is "maybe"`},
		{service.Settings{AllowedNetworks: "here"}, nil, "IRONPLANE_ALLOWED_NETWORKS"},
		{service.Settings{SMTP: "mail.example.com"}, nil, "IRONPLANE_SMTP"},
		{service.Settings{ACMEDirectory: "http://example.com"}, nil, "IRONPLANE_ACME_DIRECTORY"},
		{service.Settings{License: "/license"}, nil, "IRONPLANE_LICENSE_SIGNER"},
		{service.Settings{License: "ftp://example.com"}, nil, "IRONPLANE_LICENSE"},
	} {
		if _, err := s.Restart(invalid.settings, invalid.variables); err == nil || !strings.Contains(err.Error(), invalid.want) {
			t.Errorf("starting with %+v: got %v, want an error about %s", invalid, err, invalid.want)
		}
	}
	panel.Console = "on"
	s, err = s.Restart(panel, settings.Variables{LogDays: "5"}.NonEmpty())
	testkit.Must(t, err)
	wantPanels(panel.AdminURL, "https://api.example.com/-/console")
	if got := findSetting(t, s.Client, "log.days").Text; got != "5" {
		t.Errorf("got %q, want 5", got)
	}
}
