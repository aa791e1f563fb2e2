package gateway

import (
	"bytes"
	"encoding/base64"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/gateway/cookie"
	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/runtime/peers"
	"github.com/ironplane/ironplane/pkg/settings"
)

// consoleHost is where the tests' console is.
const consoleHost = "console.example.com"

// cookieOf returns the Cookie header of a browser that has a session with this key, over plain HTTP.
func cookieOf(key string) string {
	return "ironplane-session=" + base64.RawURLEncoding.EncodeToString([]byte(key))
}

// browse sends a request as a browser would, with headers in pairs. An empty value leaves the console's own header out.
func browse(g http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://"+consoleHost+path, strings.NewReader(body))
	r.RemoteAddr = testAddress
	r.Header.Set("X-Ironplane-Console", "1")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		if r.Header.Set(headers[i], headers[i+1]); headers[i+1] == "" {
			r.Header.Del(headers[i])
		}
	}
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	return w
}

// The cookie is a credential only for requests that the console's own page sends, and only for the API.
func TestCookieOfTheConsole(t *testing.T) {
	t.Parallel()
	config := unlimited
	config.CORSOrigins = Origins{panel}
	config.KeyInQuery = true
	d := newTestGateway(t, config)
	key, other := d.identity.issue(7), d.identity.issue(8)
	session := cookieOf(key)
	for name, c := range map[string]struct {
		path    string
		headers []string
		status  int
		keyID   int64 // at the service; 0: none
	}{
		"the console":                     {"/port-speed", []string{"Cookie", session}, 200, 7},
		"an old browser":                  {"/port-speed", []string{"Cookie", session, "Sec-Fetch-Site", ""}, 200, 7},
		"its own origin":                  {"/port-speed", []string{"Cookie", session, "Origin", "http://" + consoleHost}, 200, 7},
		"https before a proxy":            {"/port-speed", []string{"Cookie", session, "Origin", "https://" + consoleHost}, 200, 7},
		"beside other cookies":            {"/port-speed", []string{"Cookie", "a=b; " + session + "; c=d"}, 200, 7},
		"without the header":              {"/port-speed", []string{"Cookie", session, "X-Ironplane-Console", ""}, 200, 0},
		"another value of the header":     {"/port-speed", []string{"Cookie", session, "X-Ironplane-Console", "0"}, 200, 0},
		"a page of another site":          {"/port-speed", []string{"Cookie", session, "Sec-Fetch-Site", "cross-site"}, 403, 0},
		"a page of another port":          {"/port-speed", []string{"Cookie", session, "Sec-Fetch-Site", "same-site"}, 403, 0},
		"a bookmark":                      {"/port-speed", []string{"Cookie", session, "Sec-Fetch-Site", "none"}, 403, 0},
		"another origin":                  {"/port-speed", []string{"Cookie", session, "Origin", "https://evil.example.com"}, 403, 0},
		"an origin that may call the API": {"/port-speed", []string{"Cookie", session, "Origin", panel}, 403, 0},
		"a longer name":                   {"/port-speed", []string{"Cookie", session, "Origin", "https://" + consoleHost + ".evil.org"}, 403, 0},
		"another port":                    {"/port-speed", []string{"Cookie", session, "Origin", "https://" + consoleHost + ":8443"}, 403, 0},
		"a sandboxed frame":               {"/port-speed", []string{"Cookie", session, "Origin", "null"}, 403, 0},
		"with a bearer key":               {"/port-speed", []string{"Cookie", session, "Authorization", "Bearer " + other}, 400, 0},
		"with the same bearer key":        {"/port-speed", []string{"Cookie", session, "Authorization", "Bearer " + key}, 400, 0},
		"with X-Api-Key":                  {"/port-speed", []string{"Cookie", session, "X-Api-Key", other}, 400, 0},
		"with basic authentication":       {"/port-speed", []string{"Cookie", session, "Authorization", "Basic YTpi"}, 400, 0},
		"with a key in the query":         {"/port-speed?key=" + other, []string{"Cookie", session}, 400, 0},
		"a bearer key without the header": {
			"/port-speed", []string{"Cookie", session, "Authorization", "Bearer " + other, "X-Ironplane-Console", ""}, 200, 8,
		},
		"a bearer key without a cookie": {"/port-speed", []string{"Authorization", "Bearer " + other}, 200, 8},
		"a planted second cookie":       {"/port-speed", []string{"Cookie", cookieOf(other) + "; " + session}, 400, 0},
		"a guessed key":                 {"/port-speed", []string{"Cookie", cookieOf(apikey.New().Reveal())}, 401, 0},
		"rubbish":                       {"/port-speed", []string{"Cookie", "ironplane-session=%%%"}, 200, 0},
		"the documentation":             {"/-/docs", []string{"Cookie", cookieOf(apikey.New().Reveal())}, 200, 0},
		"health":                        {"/-/health", []string{"Cookie", session, "Sec-Fetch-Site", "cross-site"}, 200, 0},
		"a path of nobody":              {"/nothing", []string{"Cookie", cookieOf(apikey.New().Reveal())}, 404, 0},
		"the session, without header":   {cookie.SessionPath, []string{"Cookie", session, "X-Ironplane-Console", ""}, 403, 0},
		"the session, with a bearer":    {cookie.SessionPath, []string{"Authorization", "Bearer " + key}, 400, 0},
		"the session, from another site": {
			cookie.SessionPath, []string{"Cookie", session, "Sec-Fetch-Site", "cross-site"}, 403, 0,
		},
		"the session, without a cookie": {cookie.SessionPath, nil, 401, 0},
	} {
		d.network.mu.Lock()
		d.network.call, d.network.last = principal.Call{}, nil
		d.network.mu.Unlock()
		w := browse(d.gateway, "GET", c.path, "", c.headers...)
		if w.Code != c.status {
			t.Errorf("%s: got %d, want %d: %s", name, w.Code, c.status, w.Body)
		}
		var id int64
		if p := d.network.call.Principal; p != nil {
			id = p.KeyID
		}
		if id != c.keyID {
			t.Errorf("%s: got the key %d at the service, want %d", name, id, c.keyID)
		}
		if r := d.network.last; r != nil && r.Header["Cookie"] != nil {
			t.Errorf("%s: got the cookie at the service, want none", name)
		}
		if w.Header().Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s: got %v, want no credentials allowed", name, w.Header())
		}
	}
}

// If the console is off, there is no session, and the cookie of one that began before does not count.
func TestCookieIfTheConsoleIsOff(t *testing.T) {
	t.Parallel()
	d := newTestGateway(t, testConfig{Config: Config{Console: "off"}, rates: unlimited.rates})
	session := cookieOf(d.identity.issue(7))
	for _, method := range []string{"GET", "POST", "DELETE"} {
		w := browse(d.gateway, method, cookie.SessionPath, "{}", "Cookie", session)
		if w.Code != http.StatusNotFound || w.Header()["Set-Cookie"] != nil {
			t.Errorf("%s of the session: got %d and %v, want 404 and no cookie", method, w.Code, w.Header())
		}
	}
	if w := browse(d.gateway, "GET", "/port-speed", "", "Cookie", session); w.Code != http.StatusOK || d.network.call.Principal != nil {
		t.Errorf("got %d with the principal %v at the service, want 200 with none", w.Code, d.network.call.Principal)
	}
}

// Over TLS only the cookie counts that no other host can have set.
func TestCookieOverTLS(t *testing.T) {
	t.Parallel()
	d := newTestGateway(t, unlimited)
	key := d.identity.issue(7)
	ask := func(header, origin string) (int, int64) {
		r := httptest.NewRequest("GET", "https://"+consoleHost+"/port-speed", http.NoBody) // with r.TLS
		r.RemoteAddr = testAddress
		r.Header.Set("X-Ironplane-Console", "1")
		r.Header.Set("Cookie", header)
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		w := httptest.NewRecorder()
		d.network.call = principal.Call{}
		d.gateway.ServeHTTP(w, r)
		if p := d.network.call.Principal; p != nil {
			return w.Code, p.KeyID
		}
		return w.Code, 0
	}
	if status, id := ask("__Host-"+cookieOf(key), "https://"+consoleHost); status != 200 || id != 7 {
		t.Errorf("got %d and the key %d, want 200 and 7", status, id)
	}
	if status, id := ask(cookieOf(key), ""); status != 200 || id != 0 {
		t.Errorf("got %d and the key %d for a cookie of plain HTTP, want 200 and no key", status, id)
	}
	if status, _ := ask("__Host-"+cookieOf(key), "http://"+consoleHost); status != 403 {
		t.Errorf("got %d for a page of plain HTTP, want 403", status)
	}
}

// A session in a cookie has the limits of a bearer key, and guesses those of their address.
func TestLimitsOfTheCookie(t *testing.T) {
	t.Parallel()
	config := unlimited
	config.OwnerRate, config.OwnerBurst, config.AddressRate, config.AddressBurst = 1, 2, 1, 3
	d := newTestGateway(t, config)
	session := cookieOf(d.identity.issue(7))
	for i, want := range []int{200, 200, 429} {
		if w := browse(d.gateway, "GET", "/port-speed", "", "Cookie", session); w.Code != want {
			t.Errorf("request %d of a session: got %d, want %d", i, w.Code, want)
		}
	}
	for i, want := range []int{401, 400, 403, 429} {
		headers := [][]string{
			{"Cookie", cookieOf(apikey.New().Reveal())},
			{"Cookie", session, "X-Api-Key", "x"},
			{"Cookie", session, "Sec-Fetch-Site", "cross-site"},
			{"Cookie", session, "Sec-Fetch-Site", "cross-site"},
		}[i]
		if w := browse(d.gateway, "GET", "/port-speed", "", headers...); w.Code != want {
			t.Errorf("refused request %d: got %d, want %d: %s", i, w.Code, want, w.Body)
		}
	}
	if w := browse(d.gateway, "POST", cookie.SessionPath, `{"key": "x"}`); w.Code != 429 {
		t.Errorf("got %d for a sign-in from that address, want 429", w.Code)
	}
}

// A request with the cookie ends when its session is revoked.
func TestRevokedCookie(t *testing.T) {
	t.Parallel()
	d := newTestGateway(t, unlimited)
	key := d.identity.issue(7)
	started := make(chan struct{})
	d.gateway.upstreams["network"] = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(started)
		<-r.Context().Done()
	})
	done := make(chan *httptest.ResponseRecorder)
	go func() { done <- browse(d.gateway, "GET", "/port-speed", "", "Cookie", cookieOf(key)) }()
	<-started
	d.identity.revoke(t, key)
	if w := <-done; w.Code != 401 {
		t.Errorf("got %d, want 401", w.Code)
	}
	if w := browse(d.gateway, "DELETE", cookie.SessionPath, "", "Cookie", cookieOf(key)); w.Code != 200 ||
		!strings.HasPrefix(w.Header().Get("Set-Cookie"), "ironplane-session=; Path=/; Max-Age=0") {
		t.Errorf("got %d and %v, want 200 and the cookie deleted", w.Code, w.Header())
	}
}

// Scripts get no key of a session by the cookie.
func TestNoKeysForScripts(t *testing.T) {
	t.Parallel()
	d := newTestGateway(t, unlimited)
	session := cookieOf(d.identity.issue(7))
	identity := &recordingService{}
	d.gateway.upstreams["identity"] = identity
	for _, body := range []string{
		"", "{}", `{"isWrapped": true}`, `{"owner": {"url": "/client/5"}}`, `{"name": null}`, `{"name": " "}`, `{"name": ["x"]}`,
		`{"name": "x", "password": "y"}`, `{"name": "x"`, "name\nx",
	} {
		for _, path := range []string{"/auth/key", "/auth/key/", "/auth/%6bey"} {
			if w := browse(d.gateway, "POST", path, body, "Cookie", session); w.Code != 403 {
				t.Errorf("%s %s: got %d, want 403", path, body, w.Code)
			}
		}
	}
	if identity.seen != 0 {
		t.Errorf("got %d requests at identity, want none", identity.seen)
	}
	if w := browse(d.gateway, "POST", "/auth/key", `{"name": "billing"}`, "Cookie", session); w.Code != 200 {
		t.Errorf("got %d for a named key, want 200", w.Code)
	}
}

// No log and no refusal has the session's key.
func TestCookieIsNotLogged(t *testing.T) {
	t.Parallel()
	d := newTestGateway(t, unlimited)
	var text bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
	own := peers.New(principal.Gateway, map[string]http.Handler{
		"identity": d.identity, "network": d.network, settings.ServiceName: unlimited,
	})
	upstreams := map[string]http.Handler{"identity": d.identity, "network": d.network}
	g := New(Config{}, upstreams, own, keycache.NewStore(d.redis, d.signer, log), d.redis, nil, log)
	t.Cleanup(g.Close)
	key := d.identity.issue(7)
	encoded := base64.RawURLEncoding.EncodeToString([]byte(key))
	for _, headers := range [][]string{
		{"Cookie", cookieOf(key)},
		{"Cookie", cookieOf(key), "X-Api-Key", key},
		{"Cookie", cookieOf(key), "Sec-Fetch-Site", "cross-site"},
		{"Cookie", cookieOf(key) + "; " + cookieOf(key)},
		{"Cookie", cookieOf(key), "X-Ironplane-Console", ""},
	} {
		for _, path := range []string{"/port-speed", cookie.SessionPath, "/-/docs", "/nothing"} {
			w := browse(g, "GET", path, "", headers...)
			if strings.Contains(w.Body.String(), key) || strings.Contains(w.Body.String(), encoded) {
				t.Errorf("%s %v: got the key in %s", path, headers, w.Body)
			}
		}
	}
	w := browse(g, "POST", cookie.SessionPath, `{"key": "`+key+`"}`)
	if w.Code != 200 || strings.Contains(w.Body.String(), key) {
		t.Errorf("got %d %s, want 200 without the key", w.Code, w.Body)
	}
	if got := w.Header().Get("Set-Cookie"); got != "ironplane-session="+encoded+"; Path=/; HttpOnly; SameSite=Strict" {
		t.Errorf("got the cookie %s", got)
	}
	if n := strings.Count(text.String(), `"msg":"request"`); n != 21 {
		t.Errorf("got %d requests in the log, want 21", n)
	}
	if strings.Contains(text.String(), key) || strings.Contains(text.String(), encoded) {
		t.Errorf("got the key in the log, want it in none: %s", text.String())
	}
}
