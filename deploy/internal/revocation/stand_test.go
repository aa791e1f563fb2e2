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
	_ = flag.Set("test.parallel", "4") // unless the command line says otherwise: these tests wait, most of the time
	testkit.Main(m)
}

// way is how the gateways reach the services.
type way string

const (
	split    way = "split"    // over mTLS, as in processes of their own
	together way = "together" // in one process
)

// stand is the product with links that can be cut, stalled and slowed: to Redis, one of the services and one of the
// gateways under test, and of the gateways to identity where that is in a process of its own.
type stand struct {
	t          *testing.T
	product    *product.Product
	admin      *testkit.Client
	redis      *cache.Client // past the links
	services   *link
	gateways   *link
	toIdentity *link
	identity   *slow
	doors      []*testkit.Client
}

// newStand has the doors go by these settings, nil for those of the product.
func newStand(t *testing.T, reached way, doors int, values settings.Values) *stand {
	t.Helper()
	s := &stand{t: t, redis: testkit.Redis(t)}
	s.services, s.gateways = newLink(t, s.redis.Options().Addr), newLink(t, s.redis.Options().Addr)
	s.product, s.admin = producttest.StartOn(t, s.redisBy(s.services))
	s.identity = &slow{Handler: s.product.Services[identity.Name]}
	services := maps.Clone(s.product.Services)
	services[identity.Name] = s.identity
	if values != nil {
		services[settings.ServiceName] = setBy{services[settings.ServiceName], values}
	}
	log := slog.New(slog.DiscardHandler) // much fails, as is wanted
	door := func(config gateway.Config, client *cache.Client) *gateway.Gateway {
		return s.product.NewGateway(config, services, peers.New(principal.Gateway, services), client, log)
	}
	if reached == split {
		m := producttest.NewMesh(t, s.product, services, log)
		s.toIdentity = newLink(t, m.Addresses[identity.Name][0])
		m.Addresses[identity.Name] = []string{s.toIdentity.proxy.Listen}
		door = m.Gateway
	}
	for range doors {
		g := door(gateway.Config{}, s.redisBy(s.gateways))
		t.Cleanup(g.Close)
		s.doors = append(s.doors, testkit.NewClient(t, g))
	}
	return s
}

// setBy is the system service with other settings.
type setBy struct {
	http.Handler
	values settings.Values
}

func (s setBy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == settings.Path {
		_ = json.NewEncoder(w).Encode(s.values)
		return
	}
	s.Handler.ServeHTTP(w, r)
}

// user makes an admin who may read port speeds, and a key.
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

// link is a way to something.
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

// redisBy is Redis by way of a link.
func (s *stand) redisBy(l *link) *cache.Client {
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

// stall keeps the connections, but nothing gets through any more.
func (l *link) stall() { l.spoil("timeout", `"timeout": 0`) }

// slow lets everything through later, and not in the order of other connections.
func (l *link) slow(by time.Duration) {
	l.spoil("latency", fmt.Sprintf(`"latency": %d, "jitter": %d`, by.Milliseconds(), by.Milliseconds()*2/3))
}

func (l *link) spoil(toxic, attributes string) {
	for _, stream := range []string{"upstream", "downstream"} {
		if _, err := l.proxy.Toxics.AddToxicJson(
			strings.NewReader(fmt.Sprintf(`{"type": %q, "stream": %q, "attributes": {%s}}`, toxic, stream, attributes)),
		); err != nil {
			l.t.Error(err)
		}
	}
}

func (l *link) heal() { l.proxy.Toxics.ResetToxics(l.t.Context()) }

// slow is identity, for which questions about keys and owners, answers to them, or both take a while.
type slow struct {
	http.Handler
	question, answer atomic.Int64 // at most, in ns; at least half of that
}

func (s *slow) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.URL.Path, "/internal/") {
		s.Handler.ServeHTTP(w, r)
		return
	}
	dawdle(&s.question)
	response := httptest.NewRecorder()
	s.Handler.ServeHTTP(response, r)
	dawdle(&s.answer)
	w.WriteHeader(response.Code)
	_, _ = w.Write(response.Body.Bytes())
}

func dawdle(most *atomic.Int64) {
	if n := most.Load(); n > 0 {
		time.Sleep(time.Duration(n/2 + rand.Int64N(n/2)))
	}
}
