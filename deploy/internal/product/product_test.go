package product_test

import (
	"flag"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/names"
	"github.com/ironplane/ironplane/services/identity/keys"
)

var full = flag.Bool("full", false, "run what is about how services are reached in one process, too, and delete more targets of references")

func TestMain(m *testing.M) {
	names.ReplaceResolver()
	_ = flag.Set(
		"test.parallel",
		strconv.Itoa(max(4, runtime.GOMAXPROCS(0))),
	) // unless the command line says otherwise: these tests wait, half of the time
	testkit.Main(m)
}

// both runs a test with a split product and, in full runs, with the product in one process.
func both(t *testing.T, test func(*testing.T, *product.Product, *testkit.Client)) {
	t.Parallel()
	starts := map[string]func(testing.TB) (*product.Product, *testkit.Client){"split": producttest.Split}
	if *full {
		starts["in one process"] = producttest.Start
	}
	for name, start := range starts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, c := start(t)
			test(t, p, c)
		})
	}
}

// shared runs a test with the shared product and, in full runs, with a product of its own in one process.
func shared(t *testing.T, test func(*testing.T, *product.Product, *testkit.Client)) {
	t.Parallel()
	if *full {
		t.Run("in one process", func(t *testing.T) { producttest.InOneProcess(t, test) })
	}
	p, c := producttest.Shared(t)
	test(t, p, c)
}

// admins is how many admins newAdmin has created.
var admins atomic.Int64

// newAdmin creates an admin with these permissions, and returns a client with its key.
func newAdmin(t *testing.T, c *testkit.Client, username string, permissions string) (id int64, client *testkit.Client) {
	t.Helper()
	username += fmt.Sprint("-", admins.Add(1)) // in a product that is shared
	id = c.Do("POST", "/admin", map[string]any{"username": username, "email": username + "@example.com", "password": ""}).Want(200).ID()
	c.Do("PATCH", path("/admin/%d/permission", id), permissions).Want(200)
	key := c.Do("POST", "/auth/key", map[string]any{"name": "test", "owner": map[string]any{"url": path("/admin/%d", id)}}).Want(200)
	return id, c.WithKey(testkit.Decode[keys.APIKey](key).Key)
}

// becomes waits until a GET has this status. Gateways use a cached result for up to 100 ms, which package revocation
// measures.
func becomes(t *testing.T, c *testkit.Client, at string, status int) {
	t.Helper()
	testkit.Await(t, fmt.Sprintf("GET %s gets %d", at, status), func() int { return c.Do("GET", at, nil).Status },
		func(got int) bool { return got == status })
}

// holdLock takes one of the product's locks, and returns the function that releases it.
func holdLock(t *testing.T, db *pg.DB, name string, number int64) (unlock func()) {
	t.Helper()
	return testkit.HoldLock(t, db, func(tx *pg.Tx) error { return tx.Lock(t.Context(), name, number) })
}

// ownedBy returns a body that creates a key for an admin, or moves one to an admin.
func ownedBy(admin int64) map[string]any {
	return map[string]any{"name": "x", "owner": map[string]any{"url": path("/admin/%d", admin)}}
}

const disable, enable = `{"disabled": true}`, `{"disabled": false}`
