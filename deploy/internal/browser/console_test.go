package browser

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/secondfactor"
	"github.com/ironplane/ironplane/services/clients"
)

// passOn lets the gateway answer every request.
func passOn(w http.ResponseWriter, r *http.Request, gateway http.Handler) { gateway.ServeHTTP(w, r) }

// consoleWindow is a browser's tab with the console.
type consoleWindow struct {
	*window
	site *site
}

func openConsole(t *testing.T) *consoleWindow {
	t.Helper()
	w := open(t)
	return &consoleWindow{w, newSite(t, passOn)}
}

// await waits until a script's expression is true in the page.
func (c *consoleWindow) await(condition, expression string) {
	c.t.Helper()
	testkit.Eventually(c.t, condition, func() bool {
		is, failed := run[bool](c.window, `() => !!(`+expression+`)`)
		return is && failed == ""
	}, func() string {
		text, failed := run[string](c.window, `() => location.href + "\n" + document.body.innerText`)
		return text + failed
	})
}

// awaitText waits until the page shows a text.
func (c *consoleWindow) awaitText(text string) {
	c.t.Helper()
	c.await("the page says "+text, fmt.Sprintf("document.body.innerText.includes(%q)", text))
}

// press clicks the visible button or link with this text.
func (c *consoleWindow) press(text string) {
	c.t.Helper()
	find := fmt.Sprintf(
		`[...document.querySelectorAll(".modal button, .modal [role=option], button, a, [role=option], [role=menuitem]")]`+
			`.find(e => e.textContent.trim() === %q && e.offsetParent && !e.disabled)`,
		text,
	)
	c.await("there is a button "+text, find)
	if _, failed := run[bool](c.window, `() => { (`+find+`).click(); return true; }`); failed != "" {
		c.t.Fatalf("press %s: %s", text, failed)
	}
}

// write types a text into the field with this label.
func (c *consoleWindow) write(label, text string) {
	c.t.Helper()
	find := fmt.Sprintf(
		`[...document.querySelectorAll("label, .react-aria-Label")].find(e => e.textContent.replace(" *", "").trim() === %q)`,
		label,
	)
	c.await("there is a field "+label, find)
	focus := `() => { const field = document.getElementById((` + find + `).htmlFor) ?? (` + find + `).control; field.focus(); field.select(); return true; }`
	if _, failed := run[bool](c.window, focus); failed != "" {
		c.t.Fatalf("write %s: %s", label, failed)
	}
	c.do(chromedp.KeyEvent(text))
}

// signInWithKey opens the console's page at a path, and signs in with a key.
func (c *consoleWindow) signInWithKey(key, path string) {
	c.t.Helper()
	c.do(chromedp.Navigate(c.site.url + "/-/console/sign-in?with=key&to=" + path))
	c.write("API key", key)
	c.press("Sign in")
}

// TestConsole signs in with a key, and creates, edits and deletes a client as a person does. Nothing is loaded from another host, and
// the page breaks none of its policies.
func TestConsole(t *testing.T) {
	t.Parallel()
	c := openConsole(t)
	c.do(chromedp.Navigate(c.site.url + "/"))
	c.awaitText("Sign in")
	c.signInWithKey("ip_wrong", "/client")
	c.awaitText("The API key is not valid.")
	c.signInWithKey(c.site.admin.Key, "/client")
	c.awaitText("No clients yet.")
	if _, failed := run[bool](c.window, `() => {
		window.violations = [];
		document.addEventListener("securitypolicyviolation", e => window.violations.push(e.violatedDirective + " " + e.blockedURI));
		return true;
	}`); failed != "" {
		t.Fatal(failed)
	}

	// Errors stand at their fields.
	c.press("Create a client")
	c.write("First", "Ben")
	c.write("Last", "Miller")
	c.write("Email", "ben")
	c.press("Create")
	c.await("the field has an error", `document.querySelector("[aria-invalid=true]")?.type === "email"`)
	c.write("Email", "ben@example.com")
	c.press("Create")
	c.awaitText("ben@example.com")
	created := testkit.Decode[clients.ViewedClient](c.site.admin.Do("GET", "/client/1", nil).Want(200))
	if created.First != "Ben" || created.Last != "Miller" {
		t.Errorf("got the client %s %s, want Ben Miller", created.First, created.Last)
	}

	// Somebody else changes the client while the form is open.
	c.press("Edit")
	c.write("Last", "Baker")
	c.site.admin.Do("PATCH", "/client/1", map[string]any{"first": "Benjamin"}).Want(200)
	c.press("Save")
	c.awaitText("Somebody else changed this item since you opened it.")
	c.awaitText("Benjamin")
	c.press("Save over it")
	c.awaitText("Saved.")
	edited := testkit.Decode[clients.ViewedClient](c.site.admin.Do("GET", "/client/1", nil).Want(200))
	if edited.First != "Benjamin" || edited.Last != "Baker" {
		t.Errorf("got the client %s %s after both edits, want Benjamin Baker", edited.First, edited.Last)
	}

	// What stands in the way of a delete is said before it is tried.
	c.site.admin.Do("POST", "/group", map[string]any{"name": "Frankfurt 1"}).Want(200)
	c.site.admin.Do("POST", "/entity", map[string]any{"group": 1, "address": "192.0.2.7", "owner": map[string]any{"id": 1}}).Want(200)
	c.press("Delete")
	c.awaitText("192.0.2.7")
	c.site.admin.Do("POST", "/entity/1/release", nil).Want(200)
	c.press("Try again")
	c.awaitText("Nothing stands in the way.")
	c.do(chromedp.Click(".modal .button.danger"))
	c.awaitText("No clients yet.")
	c.site.admin.Do("GET", "/client/1", nil).Want(404)

	violations, failed := run[[]string](c.window, `() => window.violations`)
	if failed != "" || len(violations) > 0 {
		t.Errorf("got the violations %q %s of the page's policy, want none", violations, failed)
	}
	for _, request := range c.requests() {
		if !strings.HasPrefix(request.URL, c.site.url+"/") && !strings.HasPrefix(request.URL, "blob:") {
			t.Errorf("got a request to %s, want requests to the gateway alone", request.URL)
		}
		if strings.Contains(request.URL, c.site.admin.Key) {
			t.Errorf("got the key in the address %s, want it in none", request.URL)
		}
	}
	key, failed := run[bool](c.window, `key => JSON.stringify({...localStorage}).includes(key) || document.cookie !== ""`, c.site.admin.Key)
	if key || failed != "" {
		t.Errorf("got a key or a cookie that scripts can read (%s), want none", failed)
	}
}

// TestConsoleSignIn signs in an admin by password and second factor. The admin may read addresses alone: the console shows no other
// places, and disabled buttons name the permission that lacks.
func TestConsoleSignIn(t *testing.T) {
	t.Parallel()
	c := openConsole(t)
	c.site.admin.Do("POST", "/group", map[string]any{"name": "Frankfurt 1"}).Want(200)
	c.site.admin.Do("POST", "/entity", map[string]any{"group": 1, "address": "192.0.2.7"}).Want(200)
	vera := map[string]any{"username": "vera", "email": "vera@example.com", "password": password}
	c.site.admin.Do("POST", "/admin", vera).Want(200)
	c.site.admin.Do("PATCH", "/admin/2/permission", `{"network": {"entities": {"read": true}}}`).Want(200)
	login := c.site.admin.WithKey("").Do("POST", "/auth/key", map[string]any{"type": "admin", "username": "vera", "password": password})
	own := c.site.admin.WithKey(testkit.Decode[struct{ Key string }](login.Want(200)).Key)
	app, _ := secondfactor.NewVerifiedApp(t, c.site.identity, own)

	c.do(chromedp.Navigate(c.site.url + "/-/console/entity?sort=-id"))
	c.write("User name or email address", "vera")
	c.write("Password", "an invented one")
	c.press("Sign in")
	c.await("the page refuses the password", `document.querySelector("[role=alert]")`)
	c.write("Password", password)
	c.press("Sign in")
	c.awaitText("Second factor")
	c.write("Code", "000000")
	c.press("Continue")
	c.await("the page refuses the code", `document.querySelector("[role=alert]")`)
	c.write("Code", app.Code())
	c.press("Continue")
	c.awaitText("192.0.2.7")
	if address := get(c.window, chromedp.Location()); address != c.site.url+"/-/console/entity?sort=-id" {
		t.Errorf("got the address %s after the sign-in, want the page that was asked for", address)
	}
	c.await(
		"the button names the permission",
		`[...document.querySelectorAll("button[aria-disabled]")].some(b => b.textContent.includes("Create an IP entity") &&
			b.getAttribute("aria-description").includes("network.entities write"))`,
	)
	navigation, failed := run[string](c.window, `() => document.querySelector("nav.sidebar").innerText`)
	if failed != "" || !strings.Contains(navigation, "IP entities") || strings.Contains(navigation, "Clients") {
		t.Errorf("got the navigation %q %s, want IP entities without Clients", navigation, failed)
	}
	c.press("vera")
	c.press("Sign out")
	c.awaitText("User name or email address")
	c.do(chromedp.Navigate(c.site.url + "/-/console/entity"))
	c.awaitText("User name or email address")
}
