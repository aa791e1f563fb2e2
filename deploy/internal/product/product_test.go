package product_test

import (
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// newAdmin makes an admin who holds these leaves, each "read" and "write", and answers a client with the key.
func newAdmin(t *testing.T, c *testkit.Client, username string, permissions string) (id int64, client *testkit.Client) {
	t.Helper()
	id = c.Do("POST", "/admin", map[string]any{"username": username, "email": username + "@example.com", "password": ""}).Want(200).ID()
	c.Do("PATCH", path("/admin/%d/permission", id), permissions).Want(200)
	key := c.Do("POST", "/auth/key", map[string]any{"name": "test", "owner": map[string]any{"url": path("/admin/%d", id)}}).Want(200)
	return id, c.With(testkit.Decode[identity.ShownKey](key).Key)
}
