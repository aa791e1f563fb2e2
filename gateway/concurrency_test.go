package gateway

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/testkit"
)

// Callers with many half-sent bodies, by whatever keys, take nothing from others.
func TestHalfSentBodies(t *testing.T) {
	forBothTransports(t, respond, func(t *testing.T, d *testGateway, network *blockingService, ask func(string) (net.Conn, *bufio.Reader)) {
		const limit = 20
		d.gateway.ownerConcurrency.Set(limit)
		d.gateway.addressConcurrency.Set(limit)
		keys := []string{d.identity.issue(1), d.identity.issue(2)}
		d.identity.mu.Lock()
		d.identity.admins["2"] = keycache.Owner{Active: true, Name: "bert", Grants: principal.All}
		d.identity.mu.Unlock()
		other := d.identity.issue(3)
		d.identity.mu.Lock()
		d.identity.keys[hashOf(other)] = keycache.Key{ID: 3, Owner: principal.Owner{Type: principal.Admin, ID: 2}}
		d.identity.mu.Unlock()
		var halves []net.Conn
		for n := range limit {
			c, in := ask(
				"POST /port-speed HTTP/1.1\r\nHost: x\r\nX-Api-Key: " + keys[n%2] + "\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n",
			)
			if line, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100") {
				t.Fatalf("got %q, %v, want HTTP/1.1 100", line, err)
			}
			_, _ = io.WriteString(c, "{")
			halves = append(halves, c)
		}
		for _, key := range keys {
			if w := d.want(429, key, "/port-speed"); w.Header().Get("Retry-After") == "" {
				t.Error("got 429 without Retry-After, want one")
			}
		}
		d.want(200, other, "/port-speed")
		d.want(200, "", "/port-speed")
		if n := len(network.started); n != 2 {
			t.Errorf("got %d requests at the service, want 2", n)
		}
		for _, c := range halves {
			c.Close()
		}
		testkit.Eventually(
			t,
			"the key's requests are admitted again",
			func() bool { return get(d.gateway, testAddress, keys[0], "/port-speed").Code == http.StatusOK },
		)

		for range limit {
			_, in := ask("POST /port-speed HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n")
			_, _ = in.ReadString('\n')
		}
		if w := get(d.gateway, "127.0.0.1:1", "", "/port-speed"); w.Code != http.StatusTooManyRequests {
			t.Errorf("got %d for an address with %d requests under way, want 429", w.Code, limit)
		}
		d.want(200, "", "/port-speed")
		if w := get(d.gateway, "127.0.0.1:1", other, "/port-speed"); w.Code != http.StatusOK {
			t.Errorf("got %d for a key from the same address, want 200", w.Code)
		}
	})
}

// A leaked key can use at most half of its owner's requests, so the owner can still revoke it.
func TestKeyGetsHalfOfOwnersRequests(t *testing.T) {
	t.Parallel()
	config := unlimited
	config.OwnerConcurrency = 4
	d := newTestGateway(t, config)
	network := newBlockingService(nil)
	d.gateway.upstreams["network"] = network
	leaked, own := d.identity.issue(1), d.identity.issue(2)
	var callers sync.WaitGroup
	for range 2 {
		callers.Go(func() { get(d.gateway, testAddress, leaked, "/port-speed") })
		receive(t, "the request", network.started)
	}
	d.want(429, leaked, "/port-speed")
	d.want(404, own, "/nowhere")
	close(network.proceed)
	callers.Wait()
}

// The health check responds whatever else comes from the same address.
func TestHealthIsNotCounted(t *testing.T) {
	t.Parallel()
	config := unlimited
	config.AddressConcurrency = 1
	d := newTestGateway(t, config)
	network := newBlockingService(nil)
	d.gateway.upstreams["network"] = network
	var callers sync.WaitGroup
	callers.Go(func() { get(d.gateway, testAddress, "", "/port-speed") })
	receive(t, "the request", network.started)
	d.want(429, "", "/port-speed")
	d.want(200, "", healthPath)
	close(network.proceed)
	callers.Wait()
}

// Every response has the headers for caching and framing, and none has the gateway's internal headers.
func TestSecurityHeaders(t *testing.T) {
	t.Parallel()
	d := newTestGateway(t, unlimited)
	key := d.identity.issue(1)
	for path, cache := range map[string]string{
		"/port-speed": "no-store", "/nowhere": "no-store", healthPath: "no-store", docsPath: "no-cache", docsPath + "/swagger-ui.css": "no-cache",
	} {
		w := get(d.gateway, testAddress, key, path)
		if h := w.Header(); h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != cache || h.Get("Ironplane-Route") != "" {
			t.Errorf("%s: got %v, want nosniff, Cache-Control %s and no Ironplane-Route", path, h, cache)
		}
	}
	w := d.want(200, "", docsPath)
	if h := w.Header(); h.Get("X-Frame-Options") != "DENY" || !strings.Contains(h.Get("Content-Security-Policy"), "frame-ancestors 'none'") {
		t.Errorf("got %v, want a page that no other may frame", h)
	}
	_, script, _ := strings.Cut(w.Body.String(), "<script>")
	script, _, _ = strings.Cut(script, "</script>")
	sum := sha256.Sum256([]byte(script))
	if policy := w.Header().
		Get("Content-Security-Policy"); !strings.Contains(
		policy,
		"'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'",
	) {
		t.Errorf("got the policy %s, want the hash of the page's script in it", policy)
	}
	for name, silent := range map[string]http.HandlerFunc{
		"nothing": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Ironplane-Route", "/x") },
		"nothing, at once": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Ironplane-Route", "/x")
			_ = http.NewResponseController(w).Flush()
		},
		"an announcement": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Ironplane-Route", "/x")
			w.WriteHeader(http.StatusEarlyHints)
			_, _ = io.WriteString(w, "x")
		},
	} {
		d.gateway.upstreams["network"] = silent
		if w := get(d.gateway, testAddress, key, "/port-speed"); w.Result().Header.Get("Ironplane-Route") != "" || w.Code != 200 {
			t.Errorf("a service that says %s: got %d %v, want 200 without Ironplane-Route", name, w.Code, w.Result().Header)
		}
	}
}
