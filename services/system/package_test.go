package system_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/system"
)

func TestPackages(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	put := func(name, content string) {
		t.Helper()
		name = filepath.Join(folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	c := testkit.Run(t, system.Definition, testkit.ServiceOptions{Settings: service.Settings{Packages: folder}})
	all := func() []system.Package {
		t.Helper()
		return testkit.Decode[[]system.Package](c.Do("GET", "/package", nil).Want(200))
	}
	if none := all(); len(none) != 0 {
		t.Errorf("got %v, want no packages", none)
	}
	put("shop/manifest.json", `{"name": "Shop", "version": "1.2.0", "description": "Sells servers."}`)
	put("shop/assets/js/main.js", "one")
	put("shop/assets/main.css", "a{}")
	put("shop/assets/logo.svg", "<svg/>")
	put("shop/secret.js", "secret")
	list := all()
	if len(list) != 1 || list[0].Name != "Shop" || list[0].Version != "1.2.0" || list[0].Description != "Sells servers." ||
		len(list[0].Files) != 2 {
		t.Fatalf("got %+v, want Shop 1.2.0 with two files", list)
	}
	shop := list[0]
	script := shop.Files[0]
	if !strings.HasPrefix(script, fmt.Sprintf("/package/%d/asset/js/main.js?v=", shop.ID)) {
		t.Errorf("got the files %q, want the script by its hash first", shop.Files)
	}

	// A browser without a session. OpenAPI cannot describe paths of any depth, so the requests do not go through the client.
	browse := func(status int, path string, headers ...string) (http.Header, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.URL+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		for n := 0; n < len(headers); n += 2 {
			r.Header.Set(headers[n], headers[n+1])
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != status {
			t.Errorf("%s: got %s, %v, want %d", path, response.Status, err, status)
		}
		return response.Header, string(text)
	}
	h, text := browse(200, script)
	if text != "one" || h.Get("Content-Type") != "text/javascript; charset=utf-8" ||
		h.Get("Cache-Control") != "public, max-age=31536000, immutable" {
		t.Errorf("got %q, %v, want the script, immutable", text, h)
	}
	plain, _, _ := strings.Cut(script, "?")
	if asked, _ := browse(200, plain); asked.Get("Cache-Control") != "public, no-cache" {
		t.Errorf("got %v without the hash, want no-cache", asked)
	}
	browse(304, script, "If-None-Match", h.Get("ETag"))
	if _, part := browse(206, plain, "Range", "bytes=1-"); part != "ne" {
		t.Errorf("got %q, want ne", part)
	}
	browse(416, plain, "Range", "bytes=7-")
	c.Do("GET", fmt.Sprintf("/package/%d/asset/logo.svg", shop.ID), nil).Want(200)
	for _, other := range []string{
		"secret.js", "manifest.json", "none.js", "js", "%2e%2e/secret.js", "..%2fsecret.js", ".%2e/manifest.json", "js%00", "js%2f..%2fmain.css",
	} {
		browse(404, fmt.Sprintf("/package/%d/asset/", shop.ID)+other)
	}
	browse(404, "/package/99/asset/main.css")
	browse(401, "/package")
	c.Do("GET", "/package/99", nil).Want(404)

	// New packages and changed files appear without a restart.
	seen := c.Do("GET", fmt.Sprintf("/package/%d", shop.ID), nil).Want(200).Header.Get("ETag")
	c.Do("GET", fmt.Sprintf("/package/%d", shop.ID), nil, "If-None-Match", seen).Want(304)
	put("earlier/manifest.json", `{"name": "Earlier"}`)
	put("broken/manifest.json", `{`)
	put("shop/assets/js/main.js", "other")
	list = all()
	if len(list) != 2 || list[0].ID != shop.ID || list[1].Name != "Earlier" || list[0].Files[0] == script || len(list[1].Files) != 0 {
		t.Errorf("got %+v, want Shop with another script, and Earlier without files", list)
	}
	c.Do("GET", fmt.Sprintf("/package/%d", shop.ID), nil, "If-None-Match", seen).Want(200)
	if late, text := browse(200, script); text != "other" || strings.Contains(late.Get("Cache-Control"), "immutable") {
		t.Errorf("got %q, %v by the old hash, want the other content without immutable", text, late)
	}
	if err := os.Rename(filepath.Join(folder, "shop"), filepath.Join(folder, "../away")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Join(folder, "../away")) })
	c.Do("GET", fmt.Sprintf("/package/%d", shop.ID), nil).Want(404)
	browse(404, plain)
	if err := os.Rename(filepath.Join(folder, "../away"), filepath.Join(folder, "shop")); err != nil {
		t.Fatal(err)
	}
	if back := all(); len(back) != 2 || back[0].ID != shop.ID {
		t.Errorf("got %+v, want two packages, the first with ID %d", back, shop.ID)
	}
}
