package product_test

import (
	"flag"
	"runtime"
	"strconv"
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

// both runs a test on the product split and, in full, on the product in one process.
func both(t *testing.T, test func(*testing.T, *product.Product, *testkit.Client)) {
	t.Parallel()
	ways := map[string]func(testing.TB) (*product.Product, *testkit.Client){"split": producttest.Split}
	if *full {
		ways["together"] = producttest.Start
	}
	for name, start := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, c := start(t)
			test(t, p, c)
		})
	}
}

// newAdmin makes an admin who holds these leaves, each "read" and "write", and answers a client with the key.
func newAdmin(t *testing.T, c *testkit.Client, username string, permissions string) (id int64, client *testkit.Client) {
	t.Helper()
	id = c.Do("POST", "/admin", map[string]any{"username": username, "email": username + "@example.com", "password": ""}).Want(200).ID()
	c.Do("PATCH", path("/admin/%d/permission", id), permissions).Want(200)
	key := c.Do("POST", "/auth/key", map[string]any{"name": "test", "owner": map[string]any{"url": path("/admin/%d", id)}}).Want(200)
	return id, c.WithKey(testkit.Decode[keys.APIKey](key).Key)
}

// holdLock takes a lock of the product's and answers what gives it back.
func holdLock(t *testing.T, db *pg.DB, name string, number int64) (unlock func()) {
	t.Helper()
	return testkit.HoldLock(t, db, func(tx *pg.Tx) error { return tx.Lock(t.Context(), name, number) })
}

// ownedBy is a body that makes a key for an admin, or gives one to an admin.
func ownedBy(admin int64) map[string]any {
	return map[string]any{"name": "x", "owner": map[string]any{"url": path("/admin/%d", admin)}}
}

const disable, enable = `{"disabled": true}`, `{"disabled": false}`
