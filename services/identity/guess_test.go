package identity_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/lockout"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity/keys"
)

// Of many concurrent guesses at a password, no more than the limit are compared, and each of these is logged.
func TestGuessing(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	id, own := newAdmin(t, c, "bob", `{}`)
	self := path("/admin/%d", id)
	c.Do("PATCH", self, `{"password": "a long walk home"}`).Want(200)
	validBody := `{"password": "a long walk home", "current_password": "a long walk home"}`
	invalidBody := `{"password": "mine mine mine!", "current_password": "a guess"}`
	for range lockout.MaxPerKey - 1 {
		own.Do("PATCH", self, invalidBody).WantErrors("/current_password", "wrong")
	}
	own.Do("PATCH", self, validBody).Want(200) // the right password resets the count
	var compared atomic.Int32
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			switch response := own.Do("PATCH", self, invalidBody); {
			case response.Status == 422:
				compared.Add(1)
			case response.Status != 429 || response.Header.Get("Retry-After") == "" || response.Header.Get("Retry-After") == "1":
				t.Errorf("got %d: %s, want 422, or 429 with a Retry-After above 1", response.Status, response.Text)
			}
		})
	}
	all.Wait()
	if n := compared.Load(); n != lockout.MaxPerKey {
		t.Errorf("got %d guesses compared, want %d", n, lockout.MaxPerKey)
	}
	own.Do("PATCH", self, validBody).Want(429)
	sister := testkit.Decode[keys.APIKey](own.Do("POST", "/auth/key", `{"name": "sister"}`).Want(200))
	c.WithKey(sister.Key).Do("PATCH", self, validBody).Want(429) // the name is locked out from this address
	c.Do("PATCH", self, `{"receive_copies": true}`).Want(200)
	s.wantRecords("admin.password.refused", 2*lockout.MaxPerKey-1)
}
