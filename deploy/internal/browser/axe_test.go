package browser

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/ironplane/ironplane/pkg/testkit"
)

// axeFile is the checker of accessibility rules, which make console installs.
const axeFile = "../../../gateway/console/web/node_modules/axe-core/axe.min.js"

// accessiblePages are pages of each kind: made by hand, and derived from the API document.
var accessiblePages = []string{
	"/", "/group", "/group/1", "/group/1?assign=1", "/entity", "/entity/1", "/entity/2?tab=history", "/entity?dialog=create",
	"/entity?dialog=import",
	"/client", "/client/1", "/client/1?dialog=edit", "/log", "/setting-group", "/auth/verify/auth", "/auth/key?dialog=create", "/port-speed",
	"/email/template/1",
	"/admin/1?tab=permission", "/entity?palette=1", "/entity?keys=1", "/nowhere",
}

// hasDialog matches addresses of pages with a dialog.
var hasDialog = regexp.MustCompile(`[?&](dialog|assign|palette|keys)=`)

// TestConsoleIsAccessible checks pages with axe, in light and dark colours, and that none is wider than a screen of 320 pixels.
func TestConsoleIsAccessible(t *testing.T) {
	t.Parallel()
	axe, err := os.ReadFile(filepath.FromSlash(axeFile))
	if os.IsNotExist(err) {
		t.Skip("axe-core is not installed; make console installs it")
	}
	if err != nil {
		t.Fatal(err)
	}
	c := openConsole(t)
	c.site.admin.Do("POST", "/client", map[string]any{"email": "ben@example.com", "first": "Ben", "last": "Miller"}).Want(200)
	c.site.admin.Do("POST", "/group", map[string]any{"name": "Frankfurt 1"}).Want(200)
	c.site.admin.Do("POST", "/group/1/entity/bulk", map[string]any{
		"prefix": "192.0.2.0/28", "gateway": "192.0.2.1", "subnet_mask": "255.255.255.240",
	}).Want(200)
	c.site.admin.Do("PATCH", "/entity/2", map[string]any{"owner": map[string]any{"id": 1}}).Want(200)
	c.site.admin.Do("PATCH", "/entity/3", map[string]any{"status": "reserved", "note": "for a switch"}).Want(200)
	c.site.admin.Do("PATCH", "/entity/4", map[string]any{"owner": map[string]any{"id": 1}}).Want(200)
	c.site.admin.Do("POST", "/entity/4/release", nil).Want(200)
	c.setWidth(1280)
	c.do(chromedp.Navigate(c.site.url + "/-/console/sign-in"))
	c.awaitText("Sign in")
	c.checkAxe(string(axe), "/sign-in")
	c.signInWithKey(c.site.admin.Key, "/")
	c.awaitText("Overview")
	for _, scheme := range []string{"light", "dark"} {
		call(c.window, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		for _, page := range accessiblePages {
			c.show(page)
			c.checkAxe(string(axe), scheme+" "+page)
		}
	}
	c.setWidth(320)
	for _, page := range accessiblePages {
		c.show(page)
		width, failed := run[int](c.window, `() => document.documentElement.scrollWidth`)
		if width > 320 || failed != "" {
			t.Errorf("%s: got a page of %d pixels %s, want at most 320", page, width, failed)
		}
	}
}

// setWidth makes the page as wide as a screen of this many pixels.
func (c *consoleWindow) setWidth(pixels int64) {
	call(c.window, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: pixels, Height: 800, DeviceScaleFactor: 1, Mobile: pixels < 800,
	})
}

// show opens a page of the console, and waits until all of it is there.
func (c *consoleWindow) show(page string) {
	c.t.Helper()
	c.do(chromedp.Navigate(c.site.url + "/-/console" + page))
	c.await(page+" is loaded", `document.querySelector("#main") && document.querySelector("#main").childElementCount && !document.querySelector(".loading")`)
	if hasDialog.MatchString(page) {
		c.await(page+" shows its dialog", `document.querySelector("[role=dialog]")`)
	}
}

// checkAxe reports the rules that the shown page breaks, each with its first elements.
func (c *consoleWindow) checkAxe(axe, page string) {
	c.t.Helper()
	testkit.Eventually(c.t, page+" stands still", func() bool {
		is, failed := run[bool](c.window, `async () => {
			await new Promise(r => setTimeout(r, 50));
			return document.getAnimations().every(a => a.playState !== "running" || a.effect.getTiming().iterations === Infinity);
		}`)
		return is && failed == ""
	})
	get(c.window, chromedp.Evaluate[int](axe+"\n;0"))
	broken, failed := run[[]string](c.window, `async () => {
		const {violations} = await axe.run(document, {resultTypes: ["violations"]});
		return violations.map(v => v.id + ": " + v.help + ": " + v.nodes.slice(0, 3).map(n => n.html.slice(0, 200) + " " + n.failureSummary).join(" | "));
	}`)
	if failed != "" {
		c.t.Fatalf("%s: %s", page, failed)
	}
	for _, rule := range broken {
		c.t.Errorf("%s: got the violation %s, want none", page, rule)
	}
}
