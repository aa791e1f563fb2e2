package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestConsoleForms says that forms show what a person who is signed in needs: no members of a login, and the columns of an import.
func TestConsoleForms(t *testing.T) {
	t.Parallel()
	c := openConsole(t)
	c.site.admin.Do("POST", "/group", map[string]any{"name": "Frankfurt 1"}).Want(200)
	c.signInWithKey(c.site.admin.Key, "/auth/key?dialog=create")
	labels := func() []string {
		c.t.Helper()
		c.await("there is a form", `document.querySelector(".modal .fields")`)
		got, failed := run[[]string](c.window, `() => [...document.querySelectorAll(".modal label")]
			.filter(e => !e.closest("details")).map(e => e.textContent.replace(" *", "").trim())`)
		if failed != "" {
			t.Fatal(failed)
		}
		return got
	}
	for path, left := range map[string]string{
		"/auth/key": "Auth, Device, Email, Is wrapped, Password, Type, Username",
		"/client":   "Current password, Disabled",
		"/admin":    "Current password",
	} {
		c.do(chromedp.Navigate(c.site.url + "/-/console" + path + "?dialog=create"))
		got := labels()
		if len(got) == 0 {
			t.Errorf("%s: got no fields, want some", path)
		}
		for _, label := range got {
			if strings.Contains(", "+left+",", ", "+label+",") {
				t.Errorf("%s: got the field %s, want it left out", path, label)
			}
		}
	}

	// Steps of the set-up have names for people.
	c.do(chromedp.Navigate(c.site.url + "/-/console/"))
	c.awaitText("Left to set up")
	steps, failed := run[string](c.window, `() => document.querySelector(".cards").innerText`)
	if failed != "" || strings.Contains(steps, ".") {
		t.Errorf("got the steps %q %s, want no slugs", steps, failed)
	}

	// The API takes columns that the import names.
	c.do(chromedp.Navigate(c.site.url + "/-/console/entity?dialog=import"))
	c.await("the columns are named", `document.querySelectorAll(".columns code").length > 5`)
	columns, failed := run[[]string](c.window, `() => [...document.querySelectorAll(".columns code")].map(e => e.textContent)`)
	if failed != "" {
		t.Fatal(failed)
	}
	values := map[string]string{"full_ip": "192.0.2.7", "group.id": "1", "vlan": "120"}
	var header, row []string
	for _, name := range columns {
		if value := values[name]; value != "" {
			header, row = append(header, name), append(row, value)
		}
	}
	text := strings.Join(header, ",") + "\n" + strings.Join(row, ",")
	c.replaceText("CSV", text)
	c.press("Try without a change")
	c.awaitText("Nothing was changed yet.")

	// Meanwhile somebody else takes the address. A correction of the same length is another import.
	c.site.admin.Do("POST", "/entity", map[string]any{"full_ip": "192.0.2.7", "group": map[string]any{"id": 1}}).Want(200)
	c.press("Import")
	c.awaitText("Overlaps with")
	c.replaceText("CSV", strings.Replace(text, "192.0.2.7", "192.0.2.8", 1))
	c.press("Try without a change")
	c.awaitText("Nothing was changed yet.")
	c.press("Import")
	c.awaitText("Imported.")
	if list := c.site.admin.Do("GET", "/entity", nil).Want(200).Text; !strings.Contains(list, `"192.0.2.8"`) {
		t.Errorf("got the entities %s, want the imported one", list)
	}
}
