package product_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/process/lockout"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/testkit"
)

// However many guesses at a password come at once, no more than the limit are compared, and each of these is logged.
func TestGuessing(t *testing.T) { producttest.Together(t, testGuessing) }

func testGuessing(t *testing.T, p *product.Product, c *testkit.Client) {
	id, own := newAdmin(t, c, "bob", `{}`)
	self := path("/admin/%d", id)
	c.Do("PATCH", self, `{"password": "a long walk home"}`).Want(200)
	right := `{"password": "a long walk home", "current_password": "a long walk home"}`
	wrong := `{"password": "mine mine mine!", "current_password": "who knows"}`
	for range lockout.OfKey - 1 {
		own.Do("PATCH", self, wrong).WantErrors("/current_password", "wrong")
	}
	own.Do("PATCH", self, right).Want(200) // which makes up for them
	var compared atomic.Int32
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			switch answer := own.Do("PATCH", self, wrong); {
			case answer.Status == 422:
				compared.Add(1)
			case answer.Status != 429 || answer.Header.Get("Retry-After") == "" || answer.Header.Get("Retry-After") == "1":
				t.Errorf("answered %d: %s", answer.Status, answer.Text)
			}
		})
	}
	all.Wait()
	if n := compared.Load(); n != lockout.OfKey {
		t.Errorf("%d guesses were compared, want %d", n, lockout.OfKey)
	}
	own.Do("PATCH", self, right).Want(429)
	sister := testkit.Decode[identity.APIKey](own.Do("POST", "/auth/key", `{"name": "sister"}`).Want(200))
	c.With(sister.Key).Do("PATCH", self, right).Want(429) // the name is locked from this address
	c.Do("PATCH", self, `{"receive_copies": true}`).Want(200)

	producttest.Drain(t, p)
	list := c.Do("GET", path("/log?type=admin.password.refused&target_type=admin&target_id=%d", id), nil).Want(200)
	if items := testkit.Decode[[]struct{ Desc string }](list); len(items) != 2*lockout.OfKey-1 || items[0].Desc != "Password of admin bob refused." || strings.Contains(list.Text, "who knows") {
		t.Errorf("%d log items: %s", len(items), list.Text)
	}
}
