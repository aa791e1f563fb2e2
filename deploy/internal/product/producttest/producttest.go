// Package producttest runs the whole product for a test.
package producttest

import (
	"cmp"
	"errors"
	"flag"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/gateway"
	"github.com/ironplane/ironplane/pkg/cache"
	"github.com/ironplane/ironplane/pkg/client"
	"github.com/ironplane/ironplane/pkg/runtime/maintenance"
	"github.com/ironplane/ironplane/pkg/seal"
	"github.com/ironplane/ironplane/pkg/secret"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/settings"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/admin"
)

// Unlimited are limits that no test meets by accident.
var Unlimited = settings.Variables{
	OwnerRate:          "1000000",
	OwnerBurst:         "1000000",
	AddressRate:        "1000000",
	AddressBurst:       "1000000",
	OwnerConcurrency:   "1000000",
	AddressConcurrency: "1000000",
}

// own gives every test a product of its own, to find what tests leave behind for one another.
var own = flag.Bool("own", false, "give every test a product of its own")

var shared struct {
	once    sync.Once
	product *product.Product
	client  *testkit.Client
}

// Shared returns the product that tests share, whose gateway reaches the services as that of Split does. A test creates its own
// items there, and asserts on those alone. It stops nothing and changes no setting.
func Shared(t testing.TB) (*product.Product, *testkit.Client) {
	t.Helper()
	if *own {
		return Split(t)
	}
	shared.once.Do(func() { shared.product, shared.client = Split(testkit.Shared()) })
	return shared.product, shared.client.WithT(t)
}

// Own reports whether every test gets a product of its own.
func Own() bool { return *own }

// Start runs the product on a database and a Redis of the test's own. The client has the first admin's key.
func Start(t testing.TB) (*product.Product, *testkit.Client) {
	t.Helper()
	return StartOn(t, testkit.Redis(t))
}

// StartOn is Start with the test's Redis.
func StartOn(t testing.TB, client *cache.Client) (*product.Product, *testkit.Client) {
	t.Helper()
	return StartWith(t, client, service.Settings{})
}

// StartWith is Start with the test's Redis and settings.
func StartWith(t testing.TB, client *cache.Client, settings service.Settings) (*product.Product, *testkit.Client) {
	t.Helper()
	p := open(t, client, settings)
	return p, FirstAdmin(t, p)
}

func open(t testing.TB, client *cache.Client, settings service.Settings) *product.Product {
	t.Helper()
	return openAll(t, 1, client, settings)[0]
}

// StartInstances runs n products on one database and one Redis, and returns a client of each, with the first admin's key.
func StartInstances(t testing.TB, n int) []*testkit.Client {
	t.Helper()
	all, first := StartProducts(t, n, testkit.Redis(t), service.Settings{})
	clients := []*testkit.Client{first}
	for _, p := range all[1:] {
		clients = append(clients, testkit.NewClient(t, p.Gateway).WithKey(first.Key))
	}
	return clients
}

// StartProducts runs n products on one database and one Redis. The client is the first product's, with the first admin's key.
func StartProducts(t testing.TB, n int, client *cache.Client, settings service.Settings) ([]*product.Product, *testkit.Client) {
	t.Helper()
	all := openAll(t, n, client, settings)
	return all, FirstAdmin(t, all[0])
}

func openAll(t testing.TB, n int, client *cache.Client, settings service.Settings) (all []*product.Product) {
	t.Helper()
	i := NewInstallation(t, client, settings)
	for range n {
		all = append(all, i.Open(t))
	}
	return all
}

// Installation is what outlives a running product: its databases, its master key and its settings.
type Installation struct {
	urls     map[string]secret.String
	key      secret.String
	settings service.Settings
	client   *cache.Client
	gateway  gateway.Config
}

// NewInstallation creates an installation with databases of the test's own.
func NewInstallation(t testing.TB, client *cache.Client, settings service.Settings) *Installation {
	t.Helper()
	services := make([]testkit.Service, len(product.Services))
	for i, s := range product.Services {
		services[i] = testkit.Service{Name: s.Name, Migrations: s.Migrations}
	}
	if settings.Packages == "" {
		settings.Packages = createPackages(t)
	}
	if settings.Store == "" {
		settings.Store = t.TempDir()
	}
	if settings.AdminURL == "" {
		settings.AdminURL = "https://admin.example.com"
	}
	settings.Tuning = testkit.Tune(settings.Tuning)
	settings.APIURL = cmp.Or(settings.APIURL, "https://api.example.com")
	gateway := gateway.Config{Maintenance: maintenance.File(filepath.Join(t.TempDir(), "maintenance"))}
	return &Installation{testkit.Databases(t, services...), seal.NewMasterKey(), settings, client, gateway}
}

// AdminURL returns the administrator's URL of the database.
func (i *Installation) AdminURL(t testing.TB) secret.String {
	return testkit.AdminURL(t, i.urls[identity.Name])
}

// Open runs the product until the test ends, or until Close.
func (i *Installation) Open(t testing.TB) *product.Product {
	t.Helper()
	settings := i.settings
	if settings.ACMEDirectory == "" {
		authority := silentAuthority(t)
		defer t.Cleanup(func() { _ = authority.Close() }) // before the product closes, because its orders wait for the authority
		settings.ACMEDirectory = "http://" + authority.Addr().String()
	}
	p, err := product.Open(t.Context(), i.urls, i.key, settings, Unlimited, i.client, i.gateway, Log(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// silentAuthority returns the listener of an ACME authority that never responds.
func silentAuthority(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// createPackages returns a folder with a package. Its asset is named "1", as the walks over all operations name unknown files.
func createPackages(t testing.TB) string {
	t.Helper()
	folder := t.TempDir()
	assets := filepath.Join(folder, "example", "assets")
	err := errors.Join(os.MkdirAll(assets, 0o755), os.WriteFile(filepath.Join(assets, "1"), nil, 0o644),
		os.WriteFile(filepath.Join(folder, "example", "manifest.json"), []byte(`{"name": "Example"}`), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

// Log writes warnings to the test's output.
func Log(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// FirstAdmin creates the first admin, and returns a client of the gateway with its key.
func FirstAdmin(t testing.TB, p *product.Product) *testkit.Client {
	t.Helper()
	key, created, err := admin.CreateFirst(t.Context(), p.Databases[identity.Name])
	if err != nil || !created {
		t.Fatalf("got a first admin: %t, error %v, want a first admin", created, err)
	}
	return testkit.NewClient(t, p.Gateway).WithKey(key.Reveal())
}

// API returns the Go client with the address and the key of c. It sends each request once.
func API(t testing.TB, c *testkit.Client, options ...client.Option) *client.Client {
	t.Helper()
	options = append([]client.Option{client.WithKey(c.Key), client.WithTransport(c), client.WithRetries(0)}, options...)
	api, err := client.New(c.URL, options...)
	if err != nil {
		t.Fatal(err)
	}
	return api
}
