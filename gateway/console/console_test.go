package console

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

// get requests a path of the built console.
func get(t *testing.T, h http.Handler, path string, headers ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	reader := r.Body.(io.Reader)
	if r.Header.Get("Content-Encoding") == "gzip" {
		inflated, err := gzip.NewReader(reader)
		if err != nil {
			t.Fatal(err)
		}
		reader = inflated
	}
	text, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func newBuilt(t *testing.T) *Handler {
	t.Helper()
	h, err := Built()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// asset is a file that the built page loads.
var asset = regexp.MustCompile(`(?:src|href)="/-/console/(assets/[^"]+)"`)

// maxFirstLoad is how much a browser loads at most, compressed, before the first page shows.
const maxFirstLoad = 200 << 10

func TestFirstLoad(t *testing.T) {
	t.Parallel()
	h := newBuilt(t)
	page := body(t, get(t, h, Path+"/"))
	loaded, size := asset.FindAllStringSubmatch(page, -1), 0
	for _, found := range loaded {
		r := get(t, h, Path+"/"+found[1], "Accept-Encoding", "gzip, br")
		plain := get(t, h, Path+"/"+found[1])
		if r.StatusCode != http.StatusOK || r.Header.Get("Content-Encoding") != "gzip" && plain.ContentLength > 1000 {
			t.Fatalf("%s: got %d with the encoding %q, want 200 with gzip", found[1], r.StatusCode, r.Header.Get("Content-Encoding"))
		}
		if got, want := r.Header.Get("Cache-Control"), "public, max-age=31536000, immutable"; got != want {
			t.Errorf("%s: got the Cache-Control %q, want %q", found[1], got, want)
		}
		size += int(r.ContentLength)
		if plain.Header.Get("Content-Encoding") != "" || body(t, plain) != body(t, r) {
			t.Errorf("%s: got another file without gzip, want the same", found[1])
		}
	}
	if len(loaded) < 2 || size > maxFirstLoad {
		t.Errorf("got %d files with %d bytes for the first load, want at least 2 with at most %d", len(loaded), size, maxFirstLoad)
	}
	t.Logf("the first load has %d bytes", size)
}

func TestPages(t *testing.T) {
	t.Parallel()
	h := newBuilt(t)
	page := body(t, get(t, h, Path+"/"))
	for _, path := range []string{Path, Path + "/client/5", Path + "/sign-in", Path + "/auth/sso", Path + "/entity"} {
		r := get(t, h, path)
		if r.StatusCode != http.StatusOK || body(t, r) != page {
			t.Errorf("%s: got %d and another file, want the page", path, r.StatusCode)
		}
		if got := r.Header.Get("Cache-Control"); got != "no-cache" {
			t.Errorf("%s: got the Cache-Control %q, want no-cache", path, got)
		}
	}
	first := get(t, h, Path+"/")
	if r := get(t, h, Path+"/", "If-None-Match", first.Header.Get("ETag")); r.StatusCode != http.StatusNotModified || body(t, r) != "" {
		t.Errorf("got %d for the page's own ETag, want 304 without a body", r.StatusCode)
	}
	if r := get(t, h, Path+"/assets/index-of-another-version.js"); r.StatusCode != http.StatusNotFound {
		t.Errorf("got %d for a missing asset, want 404", r.StatusCode)
	}
	if r := get(t, h, Path+"/LICENSES.txt"); !strings.Contains(body(t, r), "react-dom ") {
		t.Errorf("got licences without react-dom, want those of all packages")
	}
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	h := newBuilt(t)
	page := body(t, get(t, h, Path+"/"))
	inline := regexp.MustCompile(`(?i)<style|\sstyle=|\son[a-z]+=|<script(?:[^>]*)>[^<]|https?://`)
	if found := inline.FindString(page); found != "" {
		t.Errorf("got %q in the page, which its policy forbids", found)
	}
	header := get(t, h, Path+"/client/5").Header
	for name, want := range map[string]string{
		"Content-Security-Policy":    policy,
		"X-Frame-Options":            "DENY",
		"X-Content-Type-Options":     "nosniff",
		"Referrer-Policy":            "no-referrer",
		"Cross-Origin-Opener-Policy": "same-origin",
	} {
		if got := header.Get(name); got != want {
			t.Errorf("got %s: %s, want %s", name, got, want)
		}
	}
	if strings.Contains(policy, "unsafe") {
		t.Errorf("got the policy %q, want one without unsafe sources", policy)
	}
}

func TestMissingPage(t *testing.T) {
	t.Parallel()
	_, err := newHandler(fstest.MapFS{"icon.svg": {Data: []byte("<svg/>")}})
	if err == nil || !strings.Contains(err.Error(), "index.html is missing") {
		t.Errorf("got the error %v, want one that names index.html", err)
	}
}

func TestAcceptsGzip(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]bool{
		"": false, "gzip": true, "br, gzip;q=0.5": true, "gzip;q=0": false, "gzip; q=0.000": false, "identity": false, "GZIP": true,
	} {
		if got := AcceptsGzip(header); got != want {
			t.Errorf("%q: got %t, want %t", header, got, want)
		}
	}
}

// TestTexts compares the console's texts with those of each language file.
func TestTexts(t *testing.T) {
	t.Parallel()
	german, err := os.ReadFile("web/src/text/de.ts")
	if err != nil {
		t.Fatal(err)
	}
	call, texts := regexp.MustCompile(`\bt\(\s*("(?:[^"\\]|\\.)*")`), 0
	err = filepath.WalkDir("web/src", func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".ts") && !strings.HasSuffix(path, ".tsx") {
			return err
		}
		code, err := os.ReadFile(path)
		for _, found := range call.FindAllStringSubmatch(string(code), -1) {
			texts++
			if !strings.Contains(string(german), "  "+found[1]+":") {
				t.Errorf("%s: got no German for %s", path, found[1])
			}
		}
		return err
	})
	if err != nil || texts < 100 {
		t.Errorf("got %d texts and the error %v, want at least 100", texts, err)
	}
}
