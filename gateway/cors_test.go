package gateway

import (
	"bufio"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/auth/keycache"
)

const panel = "https://panel.example.com"

// wantPanelAllowed fails the test unless a page of the panel may read the response, without cookies.
func wantPanelAllowed(t *testing.T, name string, h http.Header) {
	t.Helper()
	if h.Get("Access-Control-Allow-Origin") != panel || !strings.Contains(strings.Join(h["Vary"], ", "), "Origin") ||
		h["Access-Control-Allow-Credentials"] != nil {
		t.Errorf("%s: got %v, want %s allowed, Vary by Origin and no credentials", name, h, panel)
	}
}

func TestPreflight(t *testing.T) {
	forBothTransports(t, respond, func(t *testing.T, d *testGateway, network *blockingService, ask func(string) (net.Conn, *bufio.Reader)) {
		preflight := func(origin, method, headers string) *http.Response {
			t.Helper()
			_, in := ask(
				"OPTIONS /port-speed/7 HTTP/1.1\r\nHost: x\r\nOrigin: " + origin + "\r\nAccess-Control-Request-Method: " + method +
					"\r\nAccess-Control-Request-Headers: " + headers + "\r\n\r\n",
			)
			got, _ := readResponse(t, in, "OPTIONS")
			return got
		}
		if got := preflight(
			panel,
			"GET",
			"x-api-key",
		); got.StatusCode != 405 && got.StatusCode != 200 || got.Header.Get("Access-Control-Allow-Origin") != "" ||
			got.Header.Get("Vary") != "" {
			t.Errorf("got %d %v where no origin is configured, want 200 or 405 without CORS headers", got.StatusCode, got.Header)
		}
		seen := len(network.started)
		d.gateway.cors = newCORS(Origins{"http://localhost:3000", panel})
		for _, method := range []string{"GET", "HEAD", "POST", "PATCH", "DELETE"} {
			got := preflight(
				panel,
				method,
				"authorization,content-encoding,content-type,idempotency-key,if-match,if-none-match,range,x-api-key,x-request-id",
			)
			if got.StatusCode != 204 || got.Header.Get("Access-Control-Allow-Methods") != method ||
				got.Header.Get("Access-Control-Allow-Headers") == "" ||
				got.Header.Get("Access-Control-Max-Age") != "7200" {
				t.Errorf("%s: got %d %v, want 204 that allows the method for 7200 s", method, got.StatusCode, got.Header)
			}
			if !strings.HasPrefix(got.Header.Get("RateLimit"), `"address"`) {
				t.Errorf("got %v, want a RateLimit of the address", got.Header)
			}
			wantPanelAllowed(t, method, got.Header)
		}
		for _, c := range [][3]string{{"https://evil.example.com", "GET", "x-api-key"}, {"https://panel.example.com.evil.org", "GET", ""},
			{"http://panel.example.com", "GET", ""}, {"null", "GET", ""},
			{"https://panel.example.com:8443", "GET", ""}, {panel, "PUT", ""}, {panel, "GET", "cookie"}, {panel, "GET", "x-forwarded-for"}} {
			if got := preflight(
				c[0],
				c[1],
				c[2],
			); got.StatusCode != 204 || got.Header.Get("Access-Control-Allow-Origin") != "" ||
				got.Header.Get("Access-Control-Allow-Headers") != "" {
				t.Errorf("%v: got %d %v, want 204 that allows nothing", c, got.StatusCode, got.Header)
			}
		}
		if len(network.started) != seen {
			t.Error("got a preflight at the service, want it answered by the gateway")
		}
	})
}

// Preflights count against the limit of their address.
func TestPreflightsAreLimited(t *testing.T) {
	t.Parallel()
	config := lowLimits
	config.CORSOrigins = Origins{panel}
	d := newTestGateway(t, config)
	refused := 0
	for range 3 * config.AddressBurst {
		r := httptest.NewRequestWithContext(t.Context(), "OPTIONS", "/port-speed", http.NoBody)
		r.Header.Set("Origin", panel)
		r.Header.Set("Access-Control-Request-Method", "GET")
		r.Header.Set("X-Api-Key", apikey.New().Reveal()) // as no browser does
		w := httptest.NewRecorder()
		d.gateway.ServeHTTP(w, r)
		if w.Code == http.StatusTooManyRequests {
			refused++
		}
	}
	if refused < config.AddressBurst || d.network.seen > 0 || d.identity.questions("key") > 0 {
		t.Errorf(
			"got %d refused, %d at a service and %d asked for a key, want at least %d, 0 and 0",
			refused, d.network.seen, d.identity.questions("key"), config.AddressBurst,
		)
	}
}

// Scripts of the panel can read every response, including errors.
func TestPagesReadAnswers(t *testing.T) {
	forBothTransports(t, nil, func(t *testing.T, d *testGateway, network *blockingService, ask func(string) (net.Conn, *bufio.Reader)) {
		network.serve = respond
		d.gateway.cors = newCORS(Origins{panel})
		key := d.identity.issue(1)
		get := func(origin, path, key string) *http.Response {
			t.Helper()
			_, in := ask("GET " + path + " HTTP/1.1\r\nHost: x\r\nOrigin: " + origin + "\r\nX-Api-Key: " + key + "\r\n\r\n")
			got, _ := readResponse(t, in, "GET")
			return got
		}
		want := func(status int, path, key string) {
			t.Helper()
			got := get(panel, path, key)
			if got.StatusCode != status || !strings.Contains(got.Header.Get("Access-Control-Expose-Headers"), http.CanonicalHeaderKey("ETag")) {
				t.Errorf("%s: got %d %v, want %d that exposes the ETag", path, got.StatusCode, got.Header, status)
			}
			wantPanelAllowed(t, path, got.Header)
		}
		want(200, "/port-speed", key)
		want(200, healthPath, key)
		want(200, docsPath+"/swagger-ui.css", key)
		want(401, "/port-speed", "wrong")
		want(404, "/nothing", key)
		d.gateway.ownerConcurrency.Set(0)
		want(429, "/port-speed", key)
		d.gateway.ownerConcurrency.Set(100)
		d.identity.set(func(w http.ResponseWriter) bool { w.WriteHeader(503); return true }, nil)
		want(503, "/port-speed", d.identity.issue(2))
		d.identity.set(func(http.ResponseWriter) bool { return false }, nil)
		if got := get(
			"https://evil.example.com",
			"/port-speed",
			key,
		); got.StatusCode != 200 || got.Header.Get("Access-Control-Allow-Origin") != "" ||
			got.Header.Get("Vary") != "Origin" {
			t.Errorf("got %d %v for another origin, want 200 that allows no origin and varies by it", got.StatusCode, got.Header)
		}

		network.serve = nil
		for len(network.started) > 0 {
			<-network.started
		}
		_, in := ask("GET /port-speed HTTP/1.1\r\nHost: x\r\nOrigin: " + panel + "\r\nX-Api-Key: " + key + "\r\n\r\n")
		receive(t, "the request", network.started)
		d.setAdmin(keycache.Owner{})
		got, _ := readResponse(t, in, "GET")
		if got.StatusCode != 401 {
			t.Errorf("got %d for a revoked key, want 401", got.StatusCode)
		}
		wantPanelAllowed(t, "revoked", got.Header)
	})
}

func TestOrigins(t *testing.T) {
	t.Parallel()
	var o Origins
	if err := o.UnmarshalText(
		[]byte(" https://panel.example.com, http://localhost:3000,https://a.b:8443,http://127.0.0.1,http://[::1]:8080,http://x.localhost,"),
	); err != nil ||
		len(o) != 6 {
		t.Errorf("got %v, %v, want 6 origins", o, err)
	}
	if err := o.UnmarshalText(nil); err != nil || o != nil {
		t.Errorf("got %v, %v, want no origins", o, err)
	}
	for _, origin := range []string{"*", "https://*", "https://*.example.com", "null", "panel.example.com", "http://panel.example.com",
		"https://panel.example.com/", "https://panel.example.com/x", "https://u@panel.example.com",
		"https://panel.example.com?x", "https://panel.example.com#x", "https://Panel.example.com", "HTTPS://panel.example.com",
		"https://panel.example.com:443", "http://localhost:80", "https://", "https://x:", "https://x:08443", "ftp://localhost",
		"https://bücher.example", "https://a b"} {
		if err := o.UnmarshalText([]byte("https://good.example.com," + origin)); err == nil || !strings.Contains(err.Error(), origin) {
			t.Errorf("%s: got %v, want an error that names it", origin, err)
		}
	}
}
