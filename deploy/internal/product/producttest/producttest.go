// Package producttest runs the whole product for a test.
package producttest

import (
	"cmp"
	"errors"
	"flag"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/gateway"
	"github.com/ironplane/ironplane/pkg/cache"
	ironplane "github.com/ironplane/ironplane/pkg/client"
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

// Shared is a product that tests share, split as Split is. A test owns the items that it makes there, and asserts on those
// alone. It stops nothing and changes no setting.
func Shared(t testing.TB) (*product.Product, *testkit.Client) {
	t.Helper()
	if *own {
		return Split(t)
	}
	shared.once.Do(func() { shared.product, shared.client = Split(testkit.Shared()) })
	return shared.product, shared.client.WithT(t)
}

// Own tells whether every test is to have a product of its own.
func Own() bool { return *own }

// Start runs the product on a database and a Redis of the test's own. The client has the first admin's key.
func Start(t testing.TB) (*product.Product, *testkit.Client) {
	t.Helper()
	return StartOn(t, testkit.Redis(t))
}

// StartOn is Start with a Redis that is given.
func StartOn(t testing.TB, client *cache.Client) (*product.Product, *testkit.Client) {
	t.Helper()
	return StartWith(t, client, service.Settings{})
}

// StartWith is Start with a Redis that is given and with what services are told.
func StartWith(t testing.TB, client *cache.Client, settings service.Settings) (*product.Product, *testkit.Client) {
	t.Helper()
	p := open(t, client, settings)
	return p, FirstAdmin(t, p)
}

func open(t testing.TB, client *cache.Client, settings service.Settings) *product.Product {
	t.Helper()
	return openAll(t, 1, client, settings)[0]
}

// Instances runs all of the product several times, on one database and one Redis. The clients have the first admin's key.
func Instances(t testing.TB, n int) []*testkit.Client {
	t.Helper()
	all, first := Products(t, n, testkit.Redis(t), service.Settings{})
	clients := []*testkit.Client{first}
	for _, p := range all[1:] {
		clients = append(clients, testkit.NewClient(t, p.Gateway).WithKey(first.Key))
	}
	return clients
}

// Products are several on one database and one Redis. The client is the first one's, with the first admin's key.
func Products(t testing.TB, n int, client *cache.Client, settings service.Settings) ([]*product.Product, *testkit.Client) {
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

// Installation is what stays when a product ends: its databases, and what it is told.
type Installation struct {
	urls     map[string]secret.String
	key      secret.String
	settings service.Settings
	client   *cache.Client
	door     gateway.Config
}

// NewInstallation makes one on databases of the test's own.
func NewInstallation(t testing.TB, client *cache.Client, settings service.Settings) *Installation {
	t.Helper()
	services := make([]testkit.Service, len(product.Services))
	for i, s := range product.Services {
		services[i] = testkit.Service{Name: s.Name, Migrations: s.Migrations}
	}
	if settings.Packages == "" {
		settings.Packages = onePackage(t)
	}
	if settings.Store == "" {
		settings.Store = t.TempDir()
	}
	if settings.AdminURL == "" {
		settings.AdminURL = "https://admin.example.com"
	}
	settings.Tuning = testkit.Tune(settings.Tuning)
	settings.APIURL = cmp.Or(settings.APIURL, "https://api.example.com")
	door := gateway.Config{Maintenance: maintenance.File(filepath.Join(t.TempDir(), "maintenance"))}
	return &Installation{testkit.Databases(t, services...), seal.NewMasterKey(), settings, client, door}
}

// Open runs the product until the test ends, or Close.
func (i *Installation) Open(t testing.TB) *product.Product {
	t.Helper()
	settings := i.settings
	if settings.ACMEDirectory == "" {
		authority := silent(t)
		defer t.Cleanup(func() { _ = authority.Close() }) // before the product ends, whose orders wait for it
		settings.ACMEDirectory = "http://" + authority.Addr().String()
	}
	p, err := product.Open(t.Context(), i.urls, i.key, settings, Unlimited, i.client, i.door, Log(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// silent is an authority of ACME that never answers.
func silent(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// onePackage is a folder with a package, whose asset is named as tests name what they know nothing of.
func onePackage(t testing.TB) string {
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

// FirstAdmin is a client of the gateway with the first admin's key.
func FirstAdmin(t testing.TB, p *product.Product) *testkit.Client {
	t.Helper()
	key, made, err := admin.CreateFirst(t.Context(), p.Databases[identity.Name])
	if err != nil || !made {
		t.Fatal(made, err)
	}
	return testkit.NewClient(t, p.Gateway).WithKey(key.Reveal())
}

// API is the generated client with a client's address and key.
func API(t testing.TB, c *testkit.Client) *ironplane.ClientWithResponses {
	t.Helper()
	api, err := ironplane.New(c.URL, c.Key, ironplane.WithHTTPClient(&http.Client{Transport: c}))
	if err != nil {
		t.Fatal(err)
	}
	return api
}
