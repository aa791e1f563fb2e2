// Package ssl tests how the product orders, shows and renews its certificate with an ACME authority.
package ssl

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/letsencrypt/challtestsrv"
	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/gateway"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/runtime/peers"
	"github.com/ironplane/ironplane/pkg/runtime/process"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/system"
)

// TestMain replaces the system's certificate pool with the authority that signs the certificates of test servers.
func TestMain(m *testing.M) {
	_ = os.Setenv("PEBBLE_VA_NOSLEEP", "1")
	_ = os.Setenv("PEBBLE_WFE_NONCEREJECT", "0")
	if err := trustTestServers(); err != nil {
		log.Fatal(err)
	}
	testkit.Main(m)
}

func trustTestServers() error {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	folder, err := os.MkdirTemp("", "ironplane-test-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "authority.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		return err
	}
	_ = os.Setenv("SSL_CERT_FILE", file)
	_, err = x509.SystemCertPool() // the first call reads SSL_CERT_FILE, and later calls return the same pool
	return err
}

// pebble is an ACME authority that resolves every name to this machine.
type pebble struct {
	*httptest.Server
	t      testing.TB
	issued atomic.Int64
	roots  *x509.CertPool // the authority's root certificate
	serve  atomic.Pointer[http.Handler]
}

// newPebble returns an authority that answers 503 until start is called.
func newPebble(t testing.TB) *pebble {
	p := &pebble{t: t}
	p.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serve := p.serve.Load()
		if serve == nil {
			http.Error(w, "the authority is away", http.StatusServiceUnavailable)
			return
		}
		if strings.HasPrefix(r.URL.Path, "/finalize-order/") {
			p.issued.Add(1)
		}
		(*serve).ServeHTTP(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *pebble) settings() service.Settings {
	return service.Settings{APIURL: "https://api.ironplane.test", ACMEDirectory: p.URL + wfe.DirectoryPath}
}

// start makes the authority reachable. It validates names at the addresses plain, by HTTP, and encrypted, by TLS.
func (p *pebble) start(plain, encrypted string) {
	p.t.Helper()
	names := freeAddress(p.t)
	resolver, err := challtestsrv.New(challtestsrv.Config{DNSAddrs: []string{names}, Log: log.New(io.Discard, "", 0)})
	if err != nil {
		p.t.Fatal(err)
	}
	resolver.SetDefaultDNSIPv4("127.0.0.1")
	resolver.SetDefaultDNSIPv6("")
	go resolver.Run()
	p.t.Cleanup(resolver.Shutdown)
	testkit.Eventually(p.t, "names are resolved", func() bool {
		for _, way := range []string{"tcp", "udp"} {
			by := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, way, names)
			}}
			if _, err := by.LookupHost(p.t.Context(), name); err != nil {
				return false
			}
		}
		return true
	})
	quiet := log.New(io.Discard, "", 0)
	store := db.NewMemoryStore()
	issuer := ca.New(quiet, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {Description: "default"}})
	front := wfe.New(
		quiet,
		store,
		va.New(quiet, port(p.t, plain), port(p.t, encrypted), true, names, store),
		issuer,
		[]string{"ironplane.test"},
		true,
		false,
		1,
		1,
	)
	p.roots = x509.NewCertPool()
	p.roots.AddCert(issuer.GetRootCert(0).Cert)
	handler := front.Handler()
	p.serve.Store(&handler)
}

// stop makes the authority answer 503 again.
func (p *pebble) stop() { p.serve.Store(nil) }

func port(t testing.TB, address string) int {
	t.Helper()
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// freeAddress returns a local address that is free for both UDP and TCP.
func freeAddress(t testing.TB) string {
	t.Helper()
	for {
		packets, err := net.ListenPacket("udp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer packets.Close()
		if connections, err := net.Listen("tcp4", packets.LocalAddr().String()); err == nil {
			defer connections.Close()
			return packets.LocalAddr().String()
		}
	}
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

const (
	unreachable = "127.0.0.1:1" // an address at which nothing listens
	name        = "api.ironplane.test"
)

// frontend is a gateway with its addresses for plain HTTP and for TLS.
type frontend struct {
	t                *testing.T
	gateway          *gateway.Gateway
	plain, encrypted string
}

// newFrontend prepares a gateway and serves it until the test ends.
func newFrontend(
	t *testing.T,
	config gateway.Config,
	newGateway func(gateway.Config) *gateway.Gateway,
	prepare func(*gateway.Gateway),
) *frontend {
	t.Helper()
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	plain, encrypted := listen(), listen()
	config.TLSListen = encrypted.Addr().String()
	g := newGateway(config)
	prepare(g)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- process.Serve(ctx, process.WithTLS(plain, encrypted, g.TLSConfig()), g, slog.New(slog.DiscardHandler))
	}()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return &frontend{t, g, plain.Addr().String(), encrypted.Addr().String()}
}

// noPreparation leaves a gateway as it is.
func noPreparation(*gateway.Gateway) {}

// inProcess returns a constructor of gateways that call the services in the same process.
func inProcess(
	t *testing.T,
	p *product.Product,
	services map[string]http.Handler,
	client *cache.Client,
) func(gateway.Config) *gateway.Gateway {
	return func(config gateway.Config) *gateway.Gateway {
		g := p.NewGateway(config, services, peers.New(principal.Gateway, services), client, producttest.Log(t))
		t.Cleanup(g.Close)
		return g
	}
}

// overMTLS returns a constructor of gateways that call the services over mTLS, as those in other processes do.
func overMTLS(t *testing.T, p *product.Product, client *cache.Client) func(gateway.Config) *gateway.Gateway {
	mesh := producttest.NewMesh(t, p, p.Services, producttest.Log(t))
	return func(config gateway.Config) *gateway.Gateway { return mesh.Gateway(config, client) }
}

// shakeHands connects by TLS and returns the state of the connection.
func (d *frontend) shakeHands(config *tls.Config) (tls.ConnectionState, error) {
	config.ServerName = name
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: time.Minute}, "tcp", d.encrypted, config)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer c.Close()
	return c.ConnectionState(), nil
}

// serial returns the serial number of the certificate that the gateway shows, or "" if the handshake fails with
// these roots.
func (d *frontend) serial(roots *x509.CertPool) string {
	state, err := d.shakeHands(&tls.Config{RootCAs: roots})
	if err != nil {
		return ""
	}
	return state.PeerCertificates[0].SerialNumber.String()
}

// call sends a request without following redirects. With an odd number of headers, the first one is the method.
func (d *frontend) call(transport *http.Transport, url string, headers ...string) *http.Response {
	d.t.Helper()
	method := http.MethodGet
	if len(headers)%2 == 1 {
		method, headers = headers[0], headers[1:]
	}
	r, err := http.NewRequestWithContext(d.t.Context(), method, url, http.NoBody)
	if err != nil {
		d.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		d.t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, response.Body)
	response.Body.Close()
	return response
}

// overTLS returns a transport that connects to the gateway by TLS, whatever the name in the URL resolves to.
func (d *frontend) overTLS(roots *x509.CertPool) *http.Transport {
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, d.encrypted)
		}}
	d.t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// TestCertificate orders a certificate that two gateways show, renews it, and deletes it. One gateway is in the
// process of the system service, and the other one calls that service over mTLS.
func TestCertificate(t *testing.T) {
	t.Parallel()
	authority, client := newPebble(t), testkit.Redis(t)
	all, c := producttest.StartProducts(t, 2, client, authority.settings())
	db := all[0].Databases[system.Name]
	withServices, withoutServices := inProcess(t, all[0], all[0].Services, client), inProcess(t, all[0], map[string]http.Handler{}, client)
	frontends := []*frontend{
		newFrontend(t, gateway.Config{}, withServices, noPreparation),
		newFrontend(t, gateway.Config{}, overMTLS(t, all[1], client), noPreparation),
	}
	view := func() system.SSL { return testkit.Decode[system.SSL](c.Do("GET", "/http/ssl", nil).Want(200)) }
	order := func() system.SSL {
		return testkit.Decode[system.SSL](c.Do("POST", "/http/ssl", `{"email": "ops@ironplane.test"}`).Want(200))
	}
	// shown waits until all gateways show the same certificate, other than before, and returns its serial number.
	shown := func(t *testing.T, before string) (now string) {
		t.Helper()
		testkit.Eventually(t, "all gateways show another certificate", func() bool {
			now = frontends[0].serial(authority.roots)
			return now != "" && now != before && frontends[1].serial(authority.roots) == now
		})
		return now
	}

	t.Run("no certificate", func(t *testing.T) {
		if is := view(); is.Enabled || is.Required || is.Status != "off" {
			t.Errorf("at first: got %+v, want it off", is)
		}
		if _, err := frontends[0].shakeHands(&tls.Config{InsecureSkipVerify: true}); err == nil {
			t.Error("got a handshake, want none without a certificate")
		}
		c.Do("POST", "/http/ssl", `{"email": "nobody"}`).Want(422)
		c.Do("DELETE", "/http/ssl", nil).Want(409)
		if is := order(); is.Status != "ordering" {
			t.Errorf("once ordered: got %+v, want it ordering", is)
		}
		testkit.Eventually(
			t,
			"the order has failed",
			func() bool { return view().Status == "failed" && strings.Contains(*view().Error, "authority is away") },
		)
		c.Do("GET", "/group", nil).Want(200)
	})
	authority.start(frontends[0].plain, unreachable)
	first := ""
	t.Run("by HTTP", func(t *testing.T) {
		if is := order(); is.Status != "ordering" {
			t.Errorf("ordered again: got %+v, want it ordering", is)
		}
		first = shown(t, "")
		if is := view(); !is.Enabled || is.Status != "valid" || is.Error != nil || *is.Name != name || is.ExpiresAt == nil {
			t.Errorf("with a certificate: got %+v, want a valid one of %s", is, name)
		}
		if n := authority.issued.Load(); n != 1 {
			t.Errorf("got %d certificates for two instances with two gateways, want 1", n)
		}
		var key, account []byte
		if err := db.QueryRow(t.Context(), "SELECT key, (SELECT key FROM acme_account) FROM ssl").Scan(&key, &account); err != nil {
			t.Fatal(err)
		}
		if text := string(key) + string(account); strings.Contains(text, "KEY") {
			t.Error("got private keys in plain text, want them sealed")
		}
	})
	t.Run("protocols", func(t *testing.T) {
		transport := frontends[0].overTLS(authority.roots)
		if response := frontends[0].call(transport, "https://"+name+"/-/health"); response.StatusCode != 200 || response.ProtoMajor != 2 {
			t.Errorf("got %s, %s, want HTTP/2, 200", response.Proto, response.Status)
		}
		old := frontends[0].overTLS(authority.roots)
		old.ForceAttemptHTTP2 = false
		if response := frontends[0].call(
			old,
			"https://"+name+"/group",
			"X-Api-Key",
			c.Key,
		); response.StatusCode != 200 ||
			response.ProtoMajor != 1 {
			t.Errorf("got %s, %s, want HTTP/1.1, 200", response.Proto, response.Status)
		}
		if _, err := frontends[0].shakeHands(
			&tls.Config{RootCAs: authority.roots, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11},
		); err == nil {
			t.Error("got a handshake with TLS 1.1, want it refused")
		}
		if state, err := frontends[0].shakeHands(
			&tls.Config{RootCAs: authority.roots, MaxVersion: tls.VersionTLS12},
		); err != nil ||
			state.Version != tls.VersionTLS12 {
			t.Errorf("got version %#x, %v, want %#x", state.Version, err, tls.VersionTLS12)
		}
		connection, err := tls.Dial(
			"tcp",
			frontends[0].encrypted,
			&tls.Config{RootCAs: authority.roots, ServerName: name, NextProtos: []string{"http/1.1"}},
		)
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		if _, err := io.WriteString(connection, "GET / HTTP/1.1\r\n\r\n"); err != nil { // without a Host
			t.Fatal(err)
		}
		if text, _ := io.ReadAll(connection); !strings.Contains(string(text), `"request_id"`) {
			t.Errorf("got %s for a malformed request, want a body with a request_id", text)
		}
	})
	authority.stop()
	t.Run("renewal", func(t *testing.T) {
		testkit.Execute(t, db, "UPDATE ssl SET renew_at = now()")
		testkit.Eventually(t, "the renewal has failed", func() bool { return view().Status == "failed" })
		if serial := frontends[1].serial(authority.roots); serial != first {
			t.Errorf("without the authority: got %q, want %q", serial, first)
		}
		authority.start(unreachable, frontends[1].encrypted) // the new authority does not know the account
		testkit.Eventually(t, "the certificate is renewed with a new account", func() bool { order(); return view().Status == "valid" })
		shown(t, first)
	})
	t.Run("required", func(t *testing.T) {
		c.Do("PATCH", "/http/ssl", `{"required": true}`).Want(200)
		plain := &http.Transport{}
		defer plain.CloseIdleConnections()
		base := "http://" + frontends[0].plain
		testkit.Eventually(t, "callers are redirected", func() bool {
			return frontends[0].call(plain, base+"/group?sort=name").Header.Get("Location") == "https://"+name+"/group?sort=name"
		})
		for _, secret := range [][]string{{"X-Api-Key", c.Key}, {"Authorization", "Bearer " + c.Key}, {"Authorization", "Basic eDp5"}, {"POST"},
			{"PATCH", "X-Api-Key", "x"},
			{"X-Api-Key", c.Key, "X-Forwarded-Proto", "https"}} {
			if response := frontends[0].call(plain, base+"/group", secret...); response.StatusCode != 403 || response.Header.Get("Location") != "" {
				t.Errorf("%v: got %s, want 403 without a Location", secret[0], response.Status)
			}
		}
		if response := frontends[0].call(plain, base+"/group?key="+c.Key); response.StatusCode != 403 || response.Header.Get("Location") != "" {
			t.Errorf("a key in the query: got %s, want 403 without a Location", response.Status)
		}
		if response := frontends[0].call(plain, base+"/-/health"); response.StatusCode != 200 {
			t.Errorf("the health: got %s, want 200", response.Status)
		}
		if response := frontends[0].call(plain, base+"/.well-known/acme-challenge/x"); response.StatusCode != 404 {
			t.Errorf("a challenge: got %s, want 404", response.Status)
		}
		if response := frontends[0].call(
			frontends[0].overTLS(authority.roots),
			"https://"+name+"/group",
			"X-Api-Key",
			c.Key,
		); response.StatusCode != 200 {
			t.Errorf("by TLS: got %s, want 200", response.Status)
		}
		behind := newFrontend(t, gateway.Config{TrustedProxies: loopback}, withServices, noPreparation)
		testkit.Eventually(t, "the gateway behind a proxy requires TLS", func() bool {
			return behind.call(plain, "http://"+behind.plain+"/group", "X-Api-Key", c.Key).StatusCode == 403
		})
		for forwarded, want := range map[string]int{"https": 200, "http": 403, "https, http": 403, "": 403} {
			if response := behind.call(
				plain,
				"http://"+behind.plain+"/group",
				"X-Api-Key",
				c.Key,
				"X-Forwarded-Proto",
				forwarded,
			); response.StatusCode != want {
				t.Errorf("a proxy with %q: got %s, want %d", forwarded, response.Status, want)
			}
		}
	})
	t.Run("copy", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "certificate")
		key, err := seal.Derive(seal.NewMasterKey(), principal.Gateway, seal.Sealing(principal.Gateway))
		if err != nil {
			t.Fatal(err)
		}
		box, err := key.Box(principal.Gateway)
		if err != nil {
			t.Fatal(err)
		}
		keep := func(g *gateway.Gateway) {
			if err := g.KeepCertificate(file, box); err != nil {
				t.Error(err)
			}
		}
		other, now := newFrontend(t, gateway.Config{}, overMTLS(t, all[1], client), keep), ""
		var text []byte
		testkit.Eventually(t, "the certificate is shown, and kept", func() bool {
			now = other.serial(authority.roots)
			text, err = os.ReadFile(file)
			return now != "" && err == nil
		})
		if strings.Contains(string(text), "KEY") {
			t.Error("got a copy in plain text, want it sealed")
		}
		orphan := newFrontend(t, gateway.Config{}, withoutServices, keep)
		if serial := orphan.serial(authority.roots); serial == "" || serial != now {
			t.Errorf("a gateway that starts alone: got %q, want %q", serial, now)
		}
		if response := orphan.call(
			&http.Transport{DisableKeepAlives: true},
			"http://"+orphan.plain+"/group",
			"X-Api-Key",
			c.Key,
		); response.StatusCode != 403 {
			t.Errorf("a gateway that starts alone: got %s for plain HTTP, want 403", response.Status)
		}
	})
	t.Run("end", func(t *testing.T) {
		c.Do("DELETE", "/http/ssl", nil).Want(200)
		if is := view(); is.Enabled || is.Required || is.Status != "off" {
			t.Errorf("deleted: got %+v, want it off", is)
		}
		plain := &http.Transport{DisableKeepAlives: true}
		for _, d := range frontends {
			testkit.Eventually(t, "the certificate is out of use", func() bool { return d.serial(authority.roots) == "" })
			if response := d.call(plain, "http://"+d.plain+"/group", "X-Api-Key", c.Key); response.StatusCode != 200 {
				t.Errorf("plain HTTP: got %s, want 200", response.Status)
			}
		}
	})
}
