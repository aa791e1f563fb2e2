package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/ironplane/ironplane/pkg/testkit"

	"github.com/ironplane/ironplane/services/network"
)

// location returns the address of the shown page below the console.
func (c *consoleWindow) location() string {
	c.t.Helper()
	return strings.TrimPrefix(get(c.window, chromedp.Location()), c.site.url+"/-/console")
}

// awaitLocation waits until the console shows this page.
func (c *consoleWindow) awaitLocation(want string) {
	c.t.Helper()
	testkit.Eventually(c.t, "the console shows "+want, func() bool { return c.location() == want })
}

// click clicks the first element that a selector finds.
func (c *consoleWindow) click(selector string) {
	c.t.Helper()
	find := `document.querySelector(` + "`" + selector + "`" + `)`
	c.await("there is "+selector, find)
	if _, failed := run[bool](c.window, `() => { `+find+`.click(); return true; }`); failed != "" {
		c.t.Fatalf("click %s: %s", selector, failed)
	}
}

// pick searches the options of the field with this label, and takes the one with the text.
func (c *consoleWindow) pick(label, search, option string) {
	c.t.Helper()
	c.write(label, search)
	c.await("there is the option "+option, `[...document.querySelectorAll("[role=option]")].some(o => o.textContent.startsWith("`+option+`"))`)
	c.do(chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.Enter))
}

// TestConsoleAddressSpace assigns a free address by a click on the map, and finds it by the palette. Filters, order and dialog are in
// the page's address.
func TestConsoleAddressSpace(t *testing.T) {
	t.Parallel()
	c := openConsole(t)
	admin := c.site.admin
	admin.Do("POST", "/client", map[string]any{"email": "ben@example.com", "first": "Ben", "last": "Miller"}).Want(200)
	admin.Do("POST", "/group", map[string]any{"name": "Frankfurt 1"}).Want(200)
	admin.Do("POST", "/group/1/entity/bulk", map[string]any{"prefix": "192.0.2.0/28", "gateway": "192.0.2.1", "subnet_mask": "255.255.255.240"}).Want(200)
	admin.Do("PATCH", "/entity/2", map[string]any{"status": "reserved", "note": "for a switch"}).Want(200)

	c.signInWithKey(admin.Key, "/group/1")
	c.awaitText("192.0.2.0/24")
	c.await("the map shows a reserved address", `document.querySelector(".cell.reserved")?.ariaLabel === "192.0.2.3: reserved · for a switch"`)
	c.click(`.cell[aria-label="192.0.2.5: available"]`)
	c.awaitLocation("/group/1?assign=4")
	c.pick("Client", "ben", "Ben Miller")
	c.press("Assign")
	c.await("the map shows the assigned address", `document.querySelector(".cell.assigned")?.ariaLabel.includes("Ben Miller")`)
	if e := testkit.Decode[network.IPEntity](admin.Do("GET", "/entity/4", nil).Want(200)); e.Owner == nil || e.Owner.ID != 1 {
		t.Errorf("got the owner %+v, want client 1", e.Owner)
	}

	c.do(chromedp.KeyEvent("k", chromedp.KeyModifiers(chromedp.ModifierCtrl)))
	c.await("the palette is open", `document.querySelector(".palette-field input") === document.activeElement`)
	c.do(chromedp.KeyEvent("192.0.2.5"))
	c.await("the palette has found the address", `document.querySelector(".hits [aria-selected=true]")?.textContent.includes("Ben Miller")`)
	c.do(chromedp.KeyEvent(kb.Enter))
	c.awaitLocation("/entity/4")

	c.do(chromedp.Navigate(c.site.url + "/-/console/entity?status=available&sort=-address"))
	c.awaitText("11 in all")
	rows, failed := run[string](c.window, `() => document.querySelector("tbody .item").textContent`)
	if failed != "" || rows != "192.0.2.14" {
		t.Errorf("got %q %s as the first row, want the highest free address", rows, failed)
	}
	c.click(`tbody tr:nth-child(1) input`)
	c.click(`tbody tr:nth-child(2) input`)
	c.press("Edit")
	c.awaitLocation("/entity?status=available&sort=-address&dialog=edit-many&ids=13%2C12")
	c.write("VLAN", "200")
	c.press("Save")
	c.awaitText("2 items changed.")
	for _, id := range []string{"12", "13"} {
		if e := testkit.Decode[network.IPEntity](admin.Do("GET", "/entity/"+id, nil).Want(200)); e.VLAN == nil || *e.VLAN != 200 {
			t.Errorf("entity %s: got the VLAN %v, want 200", id, e.VLAN)
		}
	}
}

// TestConsoleImport pastes CSV. A trial names the cell with an error, and only the last step changes anything.
func TestConsoleImport(t *testing.T) {
	t.Parallel()
	c := openConsole(t)
	c.signInWithKey(c.site.admin.Key, "/port-speed?dialog=import")
	c.write("CSV", "name,speed\n1 Gbit/s,fast")
	c.press("Try without a change")
	c.await("the report names line and cell", `document.querySelector("table[role=alert] tbody tr")?.innerText.startsWith("2\tfast")`)
	c.write("CSV", "name,speed\n1 Gbit/s,1000")
	c.press("Try without a change")
	c.awaitText("Nothing was changed yet. 1 created")
	if list := c.site.admin.Do("GET", "/port-speed", nil).Want(200); list.Text != "[]\n" && list.Text != "[]" {
		t.Errorf("got %s after a trial, want no port speed", list.Text)
	}
	c.press("Import")
	c.awaitText("Imported.")
	c.site.admin.Do("GET", "/port-speed/1", nil).Want(200)
}

// TestConsoleActing works as a client, which the head of every page shows, and returns. The client sees its own places alone.
func TestConsoleActing(t *testing.T) {
	t.Parallel()
	c := openConsole(t)
	c.site.admin.Do("POST", "/client", map[string]any{"email": "ben@example.com", "first": "Ben", "last": "Miller"}).Want(200)
	c.signInWithKey(c.site.admin.Key, "/client/1")
	c.press("Work as this client")
	c.awaitText("admin works as Ben Miller")
	places, failed := run[string](c.window, `() => document.querySelector("nav.sidebar").innerText`)
	if failed != "" || strings.Contains(places, "Admins") || strings.Contains(places, "Settings") || !strings.Contains(places, "IP entities") {
		t.Errorf("got the places %q %s, want those of a client", places, failed)
	}
	c.press("Stop")
	c.await("the console is the admin's again", `document.querySelector("nav.sidebar")?.innerText.includes("Admins")`)
}
