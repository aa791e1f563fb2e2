package gateway

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/apikey"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/runtime/peers"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/testkit"

	"github.com/ironplane/ironplane/pkg/auth/keycache"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/devservers"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/settings"
)

// testConfig is the configuration of a gateway under test, and its settings.
type testConfig struct {
	Config
	rates
	KeyInQuery bool
}

type rates struct{ OwnerRate, OwnerBurst, AddressRate, AddressBurst, OwnerConcurrency, AddressConcurrency int }

var unlimited = testConfig{
	rates: rates{
		OwnerRate:          1_000_000,
		OwnerBurst:         1_000_000,
		AddressRate:        1_000_000,
		AddressBurst:       1_000_000,
		OwnerConcurrency:   1_000_000,
		AddressConcurrency: 1_000_000,
	},
}

// ServeHTTP returns the settings, as the system service does.
func (s testConfig) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	values := settings.Values{}
	for setting, n := range map[settings.Integer]int{settings.OwnerRate: s.OwnerRate, settings.OwnerBurst: s.OwnerBurst,
		settings.OwnerConcurrency: s.OwnerConcurrency,
		settings.AddressRate:      s.AddressRate, settings.AddressBurst: s.AddressBurst, settings.AddressConcurrency: s.AddressConcurrency} {
		values[setting.Slug] = strconv.Itoa(n)
	}
	if s.KeyInQuery {
		values[settings.KeyInQuery.Slug] = "1"
	}
	_ = json.NewEncoder(w).Encode(values)
}

// testGateway is a gateway under test, with doubles of its services.
type testGateway struct {
	t        testing.TB
	gateway  *Gateway
	identity *fakeIdentity
	network  *recordingService
	redis    *cache.Client
	server   *devservers.Redis
	signer   *seal.Signer
	warnings *warningHandler
}

// warningHandler notes whether a warning or an error was logged.
type warningHandler struct {
	slog.Handler
	any *atomic.Bool
}

func (w *warningHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (w *warningHandler) Handle(context.Context, slog.Record) error    { w.any.Store(true); return nil }

func newTestGateway(t testing.TB, config testConfig) *testGateway {
	t.Helper()
	return newTestGatewayOn(t, config, devservers.RedisOptions{Embedded: true})
}

func newTestGatewayOn(t testing.TB, config testConfig, options devservers.RedisOptions) *testGateway {
	t.Helper()
	server, err := devservers.StartRedis(context.Background(), options)
	if err != nil {
		t.Fatal(err)
	}
	client, err := cache.Open(secret.New(server.URL()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.Close()
		_ = server.Stop(context.Background())
	})
	signer, logHandler := newSigner(t), &warningHandler{slog.DiscardHandler, &atomic.Bool{}}
	d := &testGateway{
		t:        t,
		signer:   signer,
		identity: newFakeIdentity(keycache.NewStore(client, signer, slog.New(logHandler))),
		network:  &recordingService{},
		redis:    client,
		server:   server,
		warnings: logHandler,
	}
	testkit.WaitForRedis(client)
	d.gateway = d.newGateway(config)
	return d
}

// newSigner returns a signer of entries with a new key.
func newSigner(t testing.TB) *seal.Signer {
	t.Helper()
	key, err := seal.Derive(seal.NewMasterKey(), principal.Gateway, keycache.Purpose)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := key.Signer(keycache.Purpose)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

// newGateway returns a further gateway with the same Redis and services.
func (d *testGateway) newGateway(config testConfig) *Gateway {
	d.t.Helper()
	upstreams := map[string]http.Handler{"identity": d.identity, "network": d.network}
	log := slog.New(d.warnings)
	peers := peers.New(principal.Gateway, map[string]http.Handler{"identity": d.identity, "network": d.network, settings.ServiceName: config})
	g := New(config.Config, upstreams, peers, keycache.NewStore(d.redis, d.signer, log), d.redis, nil, log)
	d.t.Cleanup(g.Close)
	return g
}

// questions checks how many questions about keys identity got. If Redis responded too late, as on a busy machine, there may be
// more.
func (d *testGateway) questions(want int) {
	d.t.Helper()
	if n := d.identity.questions("key"); n < want || n > want && !d.warnings.any.Load() {
		d.t.Errorf("got %d questions, want %d", n, want)
	}
}

// get sends a request with a key, and headers in pairs. It gives up after a while, in case a test admits a request that a service
// holds.
func get(g http.Handler, address, key, path string, headers ...string) *httptest.ResponseRecorder {
	ctx, cancel := context.WithTimeout(context.Background(), 3*testTimeout)
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, "GET", path, http.NoBody)
	r.RemoteAddr = address
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	return w
}

const testAddress = "192.0.2.7:1000"

func (d *testGateway) want(status int, key, path string, headers ...string) *httptest.ResponseRecorder {
	d.t.Helper()
	w := get(d.gateway, testAddress, key, path, headers...)
	if w.Code != status {
		d.t.Fatalf("%s: got %d, want %d: %s", path, w.Code, status, w.Body)
	}
	return w
}

// requestAndLeave sends a request whose caller may leave before the response.
func (d *testGateway) requestAndLeave(ctx context.Context, key string) {
	defer func() {
		if p := recover(); p != nil && (p != http.ErrAbortHandler || ctx.Err() == nil) { //nolint:errorlint // net/http compares it so
			panic(p)
		}
	}()
	r := httptest.NewRequestWithContext(ctx, "GET", "/port-speed", http.NoBody)
	r.Header.Set("X-Api-Key", key)
	d.gateway.ServeHTTP(httptest.NewRecorder(), r)
}

// recordingService is a service that keeps the last request.
type recordingService struct {
	mu   sync.Mutex
	last *http.Request
	call principal.Call
	seen int
}

func (e *recordingService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last, e.call = r, *principal.FromContext(r.Context())
	e.seen++
	w.Header().Set(problem.RouteHeader, "/port-speed/{port_speed_id}")
	_, _ = io.WriteString(w, "here")
}

// fakeIdentity is a double of identity: it knows keys and admins, and fills their entries.
type fakeIdentity struct {
	entries  *keycache.Store
	mu       sync.Mutex
	keys     map[string]keycache.Key // by hash
	admins   map[string]keycache.Owner
	requests map[string]int // how many, by kind
	// before and after run before and after the entry is read. They can delay the response, or write another one.
	before, after func(w http.ResponseWriter) (spoiled bool)
}

func newFakeIdentity(entries *keycache.Store) *fakeIdentity {
	pass := func(http.ResponseWriter) bool { return false }
	return &fakeIdentity{
		entries:  entries,
		keys:     map[string]keycache.Key{},
		admins:   map[string]keycache.Owner{"1": {Active: true, Name: "anna", Grants: principal.All}},
		requests: map[string]int{},
		before:   pass,
		after:    pass,
	}
}

// issue creates a key of admin 1.
func (o *fakeIdentity) issue(id int64) string {
	key := apikey.New().Reveal()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.keys[hashOf(key)] = keycache.Key{ID: id, Owner: principal.Owner{Type: principal.Admin, ID: 1}}
	return key
}

func (o *fakeIdentity) revoke(t testing.TB, key string) {
	t.Helper()
	o.mu.Lock()
	delete(o.keys, hashOf(key))
	o.mu.Unlock()
	if err := o.entries.Remove(t.Context(), keycache.KeyName(hashOf(key))); err != nil {
		t.Error(err)
	}
}

func hashOf(key string) string {
	hash := apikey.Hash(key)
	return hex.EncodeToString(hash[:])
}

func (o *fakeIdentity) set(before, after func(http.ResponseWriter) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if before != nil {
		o.before = before
	}
	if after != nil {
		o.after = after
	}
}

func (o *fakeIdentity) questions(kind string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.requests[kind]
}

func (o *fakeIdentity) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/internal/")
	kind, _, _ := strings.Cut(name, "/")
	o.mu.Lock()
	o.requests[kind]++
	before, after := o.before, o.after
	o.mu.Unlock()
	if before(w) {
		return
	}
	last := name[strings.LastIndexByte(name, '/')+1:]
	var answer any
	switch kind {
	case "key":
		answer, _ = keycache.Fill(r.Context(), o.entries, name, func(context.Context) (keycache.Key, error) {
			o.mu.Lock()
			defer o.mu.Unlock()
			return o.keys[last], nil
		})
	case "owner":
		answer, _ = keycache.Fill(r.Context(), o.entries, name, func(context.Context) (keycache.Owner, error) {
			o.mu.Lock()
			defer o.mu.Unlock()
			return o.admins[last], nil
		})
	case "imports":
		answer = keycache.Imports{}
	}
	if after(w) {
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func TestRequestAtService(t *testing.T) {
	t.Parallel()
	d := newTestGateway(t, unlimited)
	key := d.identity.issue(7)
	w := d.want(
		200,
		key,
		"/port-speed/3?q=x&key="+key+"&k%65y=secret&sort=name",
		"X-Api-Key",
		key,
		"X-Request-Id",
		"mine-1",
		"Ironplane-Principal",
		"forged",
	)
	request := d.network.last
	if request.URL.RawQuery != "q=x&sort=name" || request.RequestURI != "/port-speed/3?q=x&sort=name" ||
		request.Header.Get("Authorization") != "" ||
		request.Header.Get("X-Api-Key") != "" {
		t.Errorf("got %s %v at the service, want the caller's target without credentials", request.RequestURI, request.Header)
	}
	if p := d.network.call.Principal; p == nil || p.KeyID != 7 || p.Owner.URL() != "/admin/1" || p.Name != "anna" ||
		p.Grants != principal.All {
		t.Errorf("got the principal %+v, want key 7 of anna, /admin/1, with all grants", p)
	}
	if c := d.network.call; c.Peer != principal.Gateway || c.IP.String() != "192.0.2.7" || c.RequestID != "mine-1" {
		t.Errorf("got the call %+v, want mine-1 of 192.0.2.7 from the gateway", c)
	}
	if w.Header().Get("API-Version") != "1" || w.Header().Get("X-Request-Id") != "mine-1" || w.Header().Get(problem.RouteHeader) != "" {
		t.Errorf("got %v, want API-Version 1, X-Request-Id mine-1 and no route", w.Header())
	}
	for _, invalid := range []string{"", "a b", "a\tb", strings.Repeat("x", 65), "<script>"} {
		if got := d.want(200, key, "/port-speed/3", "X-Request-Id", invalid).Header().Get("X-Request-Id"); got == invalid || got == "" {
			t.Errorf("got the request ID %q for %q, want a new one", got, invalid)
		}
	}
	d.want(404, key, "/nothing")
	d.want(404, "", "/")
	seen := d.network.seen
	d.want(401, "x", "/port-speed/3")
	if d.network.seen != seen {
		t.Error("got a request with a wrong key at the service, want it refused before")
	}
	d.want(200, "", "/port-speed/3")
	if d.network.call.Principal != nil {
		t.Errorf("got the principal %+v, want none without a key", d.network.call.Principal)
	}
}

func TestKeyInQuery(t *testing.T) {
	t.Parallel()
	d := newTestGateway(t, unlimited)
	key := d.identity.issue(7)
	d.want(200, "", "/port-speed/3?key="+key)
	if d.network.call.Principal != nil {
		t.Errorf("got the principal %+v, want none: keys in the query are switched off", d.network.call.Principal)
	}
	d.want(200, "", "/port-speed/3?k%65%79="+key)
	if seen := d.network.last.URL.RawQuery; seen != "" {
		t.Errorf("got the query %q at the service, want none", seen)
	}
	on := unlimited
	on.KeyInQuery = true
	g := d.newGateway(on)
	get(g, testAddress, "", "/port-speed/3?key="+key)
	if p := d.network.call.Principal; p == nil || p.KeyID != 7 || d.network.last.URL.RawQuery != "" {
		t.Errorf("got %+v and the query %q at the service, want key 7 and no query", p, d.network.last.URL.RawQuery)
	}
	if w := get(g, testAddress, "wrong", "/port-speed/3?key="+key); w.Code != 401 {
		t.Errorf("got %d for a wrong key in the header beside a right one in the query, want 401", w.Code)
	}
}
