package revocation

import (
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/runtime/peers"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/gateway"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/keys"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "4") // these tests mostly wait; -parallel on the command line overrides it
	testkit.Main(m)
}

// topology is how the gateways reach the services.
type topology string

const (
	split    topology = "split"    // over mTLS, like separate processes
	together topology = "together" // in one process
)

// stand is the product with links that can be cut, stalled and slowed. The links lead from the services and the
// tested gateways to Redis, and from the gateways to identity if that is separate.
type stand struct {
	t                  *testing.T
	product            *product.Product
	admin              *testkit.Client
	redis              *cache.Client // connects without a link
	servicesToRedis    *link
	gatewaysToRedis    *link
	gatewaysToIdentity *link
	identity           *slow
	gateways           []*testkit.Client
}

// newStand starts the product with a number of gateways. values replace the settings of the product, unless they
// are nil.
func newStand(t *testing.T, topology topology, gateways int, values settings.Values) *stand {
	t.Helper()
	s := &stand{t: t, redis: testkit.Redis(t)}
	s.servicesToRedis, s.gatewaysToRedis = newLink(t, s.redis.Options().Addr), newLink(t, s.redis.Options().Addr)
	s.product, s.admin = producttest.StartOn(t, s.redisThrough(s.servicesToRedis))
	s.identity = &slow{Handler: s.product.Services[identity.Name]}
	services := maps.Clone(s.product.Services)
	services[identity.Name] = s.identity
	if values != nil {
		services[settings.ServiceName] = overrideSettings{services[settings.ServiceName], values}
	}
	log := slog.New(slog.DiscardHandler) // the faults cause many errors
	newGateway := func(config gateway.Config, client *cache.Client) *gateway.Gateway {
		return s.product.NewGateway(config, services, peers.New(principal.Gateway, services), client, log)
	}
	if topology == split {
		m := producttest.NewMesh(t, s.product, services, log)
		s.gatewaysToIdentity = newLink(t, m.Addresses[identity.Name][0])
		m.Addresses[identity.Name] = []string{s.gatewaysToIdentity.proxy.Listen}
		newGateway = m.Gateway
	}
	for range gateways {
		g := newGateway(gateway.Config{}, s.redisThrough(s.gatewaysToRedis))
		t.Cleanup(g.Close)
		s.gateways = append(s.gateways, testkit.NewClient(t, g))
	}
	return s
}

// overrideSettings is the system service with other settings.
type overrideSettings struct {
	http.Handler
	values settings.Values
}

func (s overrideSettings) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == settings.Path {
		_ = json.NewEncoder(w).Encode(s.values)
		return
	}
	s.Handler.ServeHTTP(w, r)
}

// user creates an admin with read access to port speeds, and a key.
func (s *stand) user(name string) (id int64, key keys.APIKey) {
	s.t.Helper()
	id = s.admin.Do("POST", "/admin", map[string]any{"username": name, "email": name + "@example.com", "password": ""}).Want(200).ID()
	s.admin.Do("PATCH", fmt.Sprintf("/admin/%d/permission", id), `{"network": {"switches": {"read": true}}}`).Want(200)
	return id, s.key(id)
}

func (s *stand) key(admin int64) keys.APIKey {
	s.t.Helper()
	owner := map[string]any{"url": fmt.Sprintf("/admin/%d", admin)}
	return testkit.Decode[keys.APIKey](s.admin.Do("POST", "/auth/key", map[string]any{"name": "test", "owner": owner}).Want(200))
}

// link is a connection that tests can cut, stall and slow.
type link struct {
	t     *testing.T
	proxy *toxiproxy.Proxy
}

func newLink(t *testing.T, address string) *link {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	l := &link{t, toxiproxy.NewProxy(server, "link", "127.0.0.1:0", address)}
	if err := l.proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.proxy.Stop)
	return l
}

// redisThrough returns a client that connects to Redis through a link.
func (s *stand) redisThrough(l *link) *cache.Client {
	s.t.Helper()
	u := url.URL{Scheme: "redis", User: url.UserPassword("", s.redis.Options().Password), Host: l.proxy.Listen}
	client, err := cache.Open(secret.New(u.String()))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = client.Close() })
	return client
}

func (l *link) cut() { l.proxy.Stop() }

func (l *link) mend() {
	if err := l.proxy.Start(); err != nil {
		l.t.Error(err)
	}
}

// stall keeps the connections open, but lets no byte through.
func (l *link) stall() { l.addToxic("timeout", `"timeout": 0`) }

// slow delays each connection by a random part of the duration, so that their order changes.
func (l *link) slow(by time.Duration) {
	l.addToxic("latency", fmt.Sprintf(`"latency": %d, "jitter": %d`, by.Milliseconds(), by.Milliseconds()*2/3))
}

func (l *link) addToxic(toxic, attributes string) {
	for _, stream := range []string{"upstream", "downstream"} {
		if _, err := l.proxy.Toxics.AddToxicJson(
			strings.NewReader(fmt.Sprintf(`{"type": %q, "stream": %q, "attributes": {%s}}`, toxic, stream, attributes)),
		); err != nil {
			l.t.Error(err)
		}
	}
}

func (l *link) heal() { l.proxy.Toxics.ResetToxics(l.t.Context()) }

// slow is identity with delayed questions about keys and owners, delayed answers, or both.
type slow struct {
	http.Handler
	question, answer atomic.Int64 // the longest delays in nanoseconds; the shortest are half of that
}

func (s *slow) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.URL.Path, "/internal/") {
		s.Handler.ServeHTTP(w, r)
		return
	}
	sleepRandom(&s.question)
	response := httptest.NewRecorder()
	s.Handler.ServeHTTP(response, r)
	sleepRandom(&s.answer)
	w.WriteHeader(response.Code)
	_, _ = w.Write(response.Body.Bytes())
}

// sleepRandom sleeps for between half of the delay and all of it.
func sleepRandom(maxDelayNanos *atomic.Int64) {
	if n := maxDelayNanos.Load(); n > 0 {
		time.Sleep(time.Duration(n/2 + rand.Int64N(n/2)))
	}
}
