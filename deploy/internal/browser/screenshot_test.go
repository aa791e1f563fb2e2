package browser

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
)

var screenshots = flag.String("screenshots", "", "a folder for pictures of the console")

// shownPages are the pages of TestScreenshots, by the names of their pictures.
var shownPages = map[string]string{
	"overview":       "/",
	"groups":         "/group",
	"address-space":  "/group/1",
	"assign":         "/group/1?assign=40",
	"entities":       "/entity?sort=address",
	"entity":         "/entity/2",
	"create":         "/entity?dialog=create",
	"client":         "/client/1",
	"log":            "/log",
	"settings":       "/setting-group",
	"second-factors": "/auth/verify/auth",
	"profiles":       "/pxe/profile",
	"template":       "/email/template/1",
}

// TestScreenshots takes pictures of thirteen pages in light and dark colours, for the docs.
func TestScreenshots(t *testing.T) {
	if *screenshots == "" {
		t.Skip("set -screenshots to a folder, as make screenshots does")
	}
	t.Parallel()
	c := openConsole(t)
	fillAddressSpace(c)
	if err := os.MkdirAll(*screenshots, 0o755); err != nil {
		t.Fatal(err)
	}
	c.setWidth(1280)
	c.signInWithKey(c.site.admin.Key, "/")
	c.awaitText("Overview")
	for _, scheme := range []string{"light", "dark"} {
		call(c.window, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		for name, path := range shownPages {
			c.show(path)
			c.await(name+" has its counts", `![...document.querySelectorAll(".tile .count")].some(e => e.textContent === "…")`)
			picture := call(c.window, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: "png"})
			if err := os.WriteFile(filepath.Join(*screenshots, name+"-"+scheme+".png"), picture.Data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// fillAddressSpace creates clients with addresses in a group.
func fillAddressSpace(c *consoleWindow) {
	c.t.Helper()
	admin := c.site.admin
	for i, name := range [][2]string{{"Ben", "Miller"}, {"Anna", "Schmidt"}, {"Lena", "Fischer"}, {"Tom", "Baker"}, {"Ida", "Novak"}} {
		admin.Do("POST", "/client", map[string]any{"email": fmt.Sprintf("c%d@example.com", i+1), "first": name[0], "last": name[1]}).Want(200)
	}
	for _, name := range []string{"Frankfurt 1", "Amsterdam 2", "Warehouse"} {
		admin.Do("POST", "/group", map[string]any{"name": name}).Want(200)
	}
	admin.Do("POST", "/group/1/entity/bulk", map[string]any{
		"prefix": "192.0.2.0/25", "gateway": "192.0.2.1", "subnet_mask": "255.255.255.128",
	}).Want(200)
	admin.Do("POST", "/entity", map[string]any{"group": 1, "address": "192.0.2.192/27"}).Want(200)
	for id := 2; id < 34; id++ {
		edit := map[string]any{"nickname": fmt.Sprintf("rack %d unit %d", 10+id/8, id%8+1), "vlan": 100 + id,
			"owner": map[string]any{"id": id%5 + 1, "server": map[string]any{"id": id, "name": fmt.Sprintf("fra1-s%d", id)}}}
		admin.Do("PATCH", fmt.Sprintf("/entity/%d", id), edit).Want(200)
	}
	for id := 60; id < 68; id++ {
		admin.Do("PATCH", fmt.Sprintf("/entity/%d", id), map[string]any{"status": "reserved", "note": "for the new switches"}).Want(200)
	}
	for _, id := range []int{5, 6, 19} {
		admin.Do("POST", fmt.Sprintf("/entity/%d/release", id), nil).Want(200)
	}
}
