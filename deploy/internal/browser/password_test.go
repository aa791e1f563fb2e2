package browser

import (
	"bytes"
	"io"
	"mime/quotedprintable"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity/keys"
)

// link waits until there are n mails with a link to choose a password, and returns the last link.
func (s *site) link(t *testing.T, n int) (link string) {
	t.Helper()
	testkit.Eventually(t, "a mail with a link has arrived", func() bool {
		found := 0
		for _, m := range s.mails.Mails() {
			text, _ := io.ReadAll(quotedprintable.NewReader(bytes.NewReader(m.Data)))
			if at := regexp.MustCompile(regexp.QuoteMeta(s.url) + `/-/password#[^\s"<]+`).Find(text); at != nil {
				link, found = strings.ReplaceAll(string(at), "&amp;", "&"), found+1
			}
		}
		return found == n
	})
	return link
}

// statusText returns the text of the page's status line.
func statusText(w *window) string {
	w.t.Helper()
	return get(w, chromedp.TextContent("#message"))
}

// awaitStatus waits until the page's status line contains text.
func awaitStatus(t *testing.T, w *window, text string) {
	t.Helper()
	testkit.Eventually(t, "the page says "+text, func() bool { return strings.Contains(statusText(w), text) })
}

// choose types a password into both fields and sends it.
func choose(w *window, text string) {
	w.t.Helper()
	if _, failed := run[int](w, `() => document.querySelectorAll("input").forEach(field => { field.value = ""; })`); failed != "" {
		w.t.Fatal(failed)
	}
	w.do(chromedp.SendKeys("#password", text), chromedp.SendKeys("#repeated", text), chromedp.Click("#button"))
}

// TestPasswordPage chooses a password with the link of a reset and signs in with it. The token never appears in the
// history, in a request's address or in a Referer.
func TestPasswordPage(t *testing.T) {
	t.Parallel()
	w := open(t)
	s := newSite(t, func(w http.ResponseWriter, r *http.Request, gateway http.Handler) { gateway.ServeHTTP(w, r) })
	s.admin.Do("POST", "/client", map[string]any{"email": "ben@example.com", "password": password, "first": "Ben", "last": "Miller"}).Want(200)
	s.admin.WithKey("").Do("POST", "/auth/password-reset", `{"email": "ben@example.com", "type": "client"}`).Want(200)
	link := s.link(t, 1)
	at, err := url.Parse(link)
	if err != nil {
		t.Fatal(err)
	}
	values, err := url.ParseQuery(at.Fragment)
	token := values.Get("token")
	if err != nil || len(token) < 40 {
		t.Fatalf("got the link %s, want one with a token of 40 characters or more", link)
	}

	w.do(chromedp.Navigate("about:blank"), chromedp.Navigate(link), chromedp.WaitVisible("#password"))
	if address := get(w, chromedp.Location()); address != s.url+"/-/password" {
		t.Errorf("got the address %s, want %s/-/password", address, s.url)
	}
	w.do(chromedp.SendKeys("#password", "one long walk home"), chromedp.SendKeys("#repeated", "another one"), chromedp.Click("#button"))
	awaitStatus(t, w, "The passwords do not match.")
	choose(w, "short")
	awaitStatus(t, w, "The password must have at least 12 characters.")
	choose(w, "passwordpassword")
	awaitStatus(t, w, "The password is too easy to guess")
	chosen := "seven grey herons at dusk, ünïcode 🦢"
	choose(w, chosen)
	awaitStatus(t, w, "You can sign in with it.")
	signIn := func(password string) *testkit.Response {
		return s.admin.WithKey("").Do("POST", "/auth/key", map[string]any{"type": "client", "email": "ben@example.com", "password": password})
	}
	if key := testkit.Decode[keys.APIKey](signIn(chosen).Want(200)); key.Key == "" {
		t.Errorf("got %+v, want an API key", key)
	}
	signIn(password).Want(401)
	if left, failed := run[bool](w, `() => document.getElementById("form") !== null`); left || failed != "" {
		t.Errorf("got a form: %t %s, want none", left, failed)
	}

	// The page explains that a link works only once, and that a link is incomplete.
	w.do(chromedp.Navigate("about:blank"), chromedp.Navigate(link), chromedp.WaitVisible("#password"))
	choose(w, "eight grey herons at dawn")
	awaitStatus(t, w, "The link has expired. Request a new one.")
	w.do(chromedp.Navigate("about:blank"), chromedp.Navigate(s.url+"/-/password"))
	awaitStatus(t, w, "The link is incomplete.")

	history := get(w, chromedp.NavigationEntries()).Entries
	if len(history) < 4 {
		t.Errorf("got %d entries in the history, want 4 or more", len(history))
	}
	for _, e := range history {
		if strings.Contains(e.URL, token) {
			t.Errorf("got %s in the history, want no token", e.URL)
		}
	}
	asked := w.requests()
	if len(asked) < 6 {
		t.Errorf("got %d requests, want 6 or more", len(asked))
	}
	for _, r := range asked {
		if strings.Contains(r.URL, token) || !strings.HasPrefix(r.URL, s.url+"/") && r.URL != "about:blank" {
			t.Errorf("got the request %s %s, want only requests to %s without the token", r.Method, r.URL, s.url)
		}
		if from := r.Headers["Referer"]; from != nil && from != "" {
			t.Errorf("%s: got the Referer %s, want none", r.URL, from)
		}
	}
}

// TestPasswordPagePolicy tests that the page's Content-Security-Policy stops injected scripts, fetches from
// elsewhere and frames. Without the policy, the same page runs and fetches them.
func TestPasswordPagePolicy(t *testing.T) {
	t.Parallel()
	w := open(t)
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		elsewhere.Add(1)
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<title>other</title>`)
	}))
	t.Cleanup(other.Close)
	injected := `<script>window.injected = 1</script><script src="` + other.URL + `/x.js"></script><img src="` + other.URL + `/x.png" onerror="window.injected = 2">` +
		`<link rel="stylesheet" href="` + other.URL + `/x.css"><iframe src="` + other.URL + `/"></iframe><style>h1 { color: rgb(1, 2, 3) }</style></body>`
	s := newSite(t, func(w http.ResponseWriter, r *http.Request, gateway http.Handler) {
		switch r.URL.Path {
		case "/-/password":
			page := httptest.NewRecorder()
			gateway.ServeHTTP(page, r)
			for name, values := range page.Header() {
				if name != "Content-Length" && (r.URL.RawQuery != "unprotected" || name != "Content-Security-Policy") {
					w.Header()[name] = values
				}
			}
			_, _ = io.WriteString(w, strings.Replace(page.Body.String(), "</body>", injected, 1))
		case "/frame":
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, `<iframe id="frame" src="/-/password"></iframe>`)
		default:
			gateway.ServeHTTP(w, r)
		}
	})
	look := func(query string) (injected, color string) {
		w.do(chromedp.Navigate(s.url + "/-/password" + query + "#id=1&token=x"))
		injected, failed := run[string](w, `() => String(window.injected)`)
		if failed != "" {
			t.Fatal(failed)
		}
		color, _ = run[string](w, `() => getComputedStyle(document.querySelector("h1")).color`)
		return injected, color
	}
	if is, color := look(""); is != "undefined" || color == "rgb(1, 2, 3)" || elsewhere.Load() != 0 {
		t.Errorf(
			"got injected script %s, colour %s, %d fetches from elsewhere, want undefined, the page's colour, 0", is, color, elsewhere.Load(),
		)
	}
	w.do(chromedp.WaitVisible("#password")) // the page's own script runs
	for _, script := range []string{`() => fetch("` + other.URL + `/").then(() => "fetched")`, `() => { document.body.innerHTML = "<b>x</b>"; return "written"; }`, `() => { const s = document.createElement("script"); s.text = "window.injected = 3"; document.body.append(s); return "appended"; }`} {
		if done, failed := run[string](w, script); failed == "" {
			t.Errorf("%s: got %s, want a failure", script, done)
		}
	}
	if elsewhere.Load() != 0 {
		t.Errorf("got %d fetches from elsewhere, want none", elsewhere.Load())
	}
	w.do(chromedp.Navigate(s.url + "/frame"))
	if framed, _ := run[bool](
		w,
		`() => { const d = document.getElementById("frame").contentDocument; return d !== null && d.getElementById("form") !== null; }`,
	); framed {
		t.Error("got the page in a frame, want it refused")
	}
	if is, color := look("?unprotected"); is == "undefined" || color != "rgb(1, 2, 3)" || elsewhere.Load() == 0 {
		t.Errorf("without the policy: got %s, %s, %d, want a script that ran, rgb(1, 2, 3), 1 or more fetches", is, color, elsewhere.Load())
	}
}
