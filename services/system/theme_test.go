package system_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/system"
)

const themePath = "/system/theme/customize"

func TestTheme(t *testing.T) {
	t.Parallel()
	c := testkit.Run(t, system.Definition, testkit.ServiceOptions{})
	visitor := c.As(nil)
	first := visitor.Do("GET", themePath, nil).Want(200)
	if is := testkit.Decode[system.ThemeOptions](first); !is.Allowed || is.SiteName != "Ironplane" || is.Theme != (system.Theme{}) {
		t.Errorf("got %+v, want the empty theme of Ironplane, allowed", is)
	}
	tag := func() string {
		t.Helper()
		answer := visitor.Do("GET", themePath, nil).Want(200)
		if cached := answer.Header.Get("Cache-Control"); !strings.HasPrefix(cached, "private") || answer.Header.Get("ETag") == "" {
			t.Errorf("got Cache-Control %q and ETag %q, want private and a tag", cached, answer.Header.Get("ETag"))
		}
		return answer.Header.Get("ETag")
	}
	seen := tag()
	if answer := visitor.Do("GET", themePath, nil, "If-None-Match", `"x", `+seen).
		Want(304); answer.Text != "" ||
		answer.Header.Get("ETag") != seen {
		t.Errorf("got %q, %q, want no text and the ETag %q", answer.Text, answer.Header.Get("ETag"), seen)
	}

	// Members are accepted in the object theme, and beside it.
	c.Do("POST", themePath, `{"theme": {"main_bg": "#1d4ed8", "custom_client_html": "<b>hello</b><script>alert(1)</script>", "logo": "https://example.com/logo.svg"}}`).
		Want(200)
	after := testkit.Decode[system.ThemeOptions](
		c.Do("POST", themePath, `{"text_color": "navy", "custom_css": "a { color: red }", "logo": null}`).Want(200),
	).Theme
	if *after.MainBackground != "#1d4ed8" || *after.TextColor != "navy" || *after.CustomClientHTML != "<b>hello</b>" ||
		*after.CustomCSS != "a { color: red }" ||
		after.Logo != nil {
		t.Errorf("got %s, want the theme as sent", testkit.JSON(after))
	}
	if tag() == seen {
		t.Errorf("got the ETag %s again, want a new one", seen)
	}
	seen = tag()
	c.Do("POST", themePath, `{"text_color": "navy"}`).Want(200)
	visitor.Do("GET", themePath, nil, "If-None-Match", seen).Want(304)
	setSetting(t, c.Client, "site_name", "Example Hosting")
	if is := testkit.Decode[system.ThemeOptions](
		visitor.Do("GET", themePath, nil, "If-None-Match", seen).Want(200),
	); is.SiteName != "Example Hosting" {
		t.Errorf("got the name %s, want Example Hosting", is.SiteName)
	}

	c.Do("POST", themePath, `{"theme": {"main_bg": "red}body{display:none", "logo": "javascript:alert(1)", "custom_css": "@import 'x'", "nav_bg": "blue"}}`).
		WantErrors("/theme/custom_css", "invalid", "/theme/logo", "invalid", "/theme/main_bg", "invalid")
	if testkit.Decode[system.ThemeOptions](visitor.Do("GET", themePath, nil).Want(200)).Theme.NavBackground != nil {
		t.Error("got a navigation colour from a refused theme, want none")
	}
	visitor.Do("POST", themePath, `{"main_bg": "red"}`).Want(401)
	c.Do("DELETE", themePath, nil).Want(405)
}

// HTML that an earlier version accepted is sanitised at the next start.
func TestStoredThemeIsSanitised(t *testing.T) {
	t.Parallel()
	c := testkit.Run(t, system.Definition, testkit.ServiceOptions{})
	c.Do("POST", themePath, `{"main_bg": "navy"}`).Want(200)
	testkit.Execute(t, c.DB, `UPDATE theme SET custom_client_html = '<p id="app">x<img src="https://evil.example/x.png" alt="y"></p>'`)
	c, err := c.Restart(service.Settings{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	is := testkit.Decode[system.ThemeOptions](c.Do("GET", themePath, nil).Want(200)).Theme
	if *is.CustomClientHTML != `<p>x<img alt="y"></p>` || is.CustomAdminHTML != nil || *is.MainBackground != "navy" {
		t.Errorf("got %s, want the HTML sanitised and the rest as it was", testkit.JSON(is))
	}
}

// Without themes in the license, the theme cannot be changed, but stays.
func TestThemeOfLicense(t *testing.T) {
	t.Parallel()
	l, settings := newLicenses(t)
	c := testkit.Run(t, system.Definition, testkit.ServiceOptions{Settings: settings})
	allowed := func(want bool) {
		t.Helper()
		if testkit.Decode[system.ThemeOptions](c.Do("GET", themePath, nil).Want(200)).Allowed != want {
			t.Errorf("got allowed %t, want %t", !want, want)
		}
	}
	allowed(true)
	c.Do("POST", themePath, `{"main_bg": "red"}`).Want(200)
	l.write(false, time.Hour)
	c.Do("POST", "/license/refresh", `{}`).Want(200)
	allowed(false)
	c.Do("POST", themePath, `{"main_bg": "blue"}`).Want(403)
	if is := testkit.Decode[system.ThemeOptions](c.Do("GET", themePath, nil).Want(200)); *is.Theme.MainBackground != "red" {
		t.Errorf("got %s, want the background red", testkit.JSON(is))
	}
}
