package identity_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/lockout"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity/keys"
)

// However many guesses at a password come at once, no more than the limit are compared, and each of these is logged.
func TestGuessing(t *testing.T) {
	t.Parallel()
	s, c := newStand(t)
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
				t.Errorf("got %d: %s, want 422, or 429 with a Retry-After above 1", answer.Status, answer.Text)
			}
		})
	}
	all.Wait()
	if n := compared.Load(); n != lockout.OfKey {
		t.Errorf("got %d guesses compared, want %d", n, lockout.OfKey)
	}
	own.Do("PATCH", self, right).Want(429)
	sister := testkit.Decode[keys.APIKey](own.Do("POST", "/auth/key", `{"name": "sister"}`).Want(200))
	c.With(sister.Key).Do("PATCH", self, right).Want(429) // the name is locked from this address
	c.Do("PATCH", self, `{"receive_copies": true}`).Want(200)
	s.wantRecords("admin.password.refused", 2*lockout.OfKey-1)
}
