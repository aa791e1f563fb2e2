package identity_test

import (
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/neighbours"
	"github.com/ironplane/ironplane/services/identity/keys"
)

// The service answers what its neighbours ask, as its double does.
func TestContract(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	a, _ := verifiedApp(t, s, c)
	id, own := newAdmin(t, c, "anna", `{}`)
	c.Do("PATCH", path("/admin/%d", id), `{"receive_copies": true}`).Want(200)
	verifiedApp(t, s, own)
	key := testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", `{"name": "another"}`).Want(200))
	neighbours.IdentityContract(t, s.Handler(), key.ID, "anna@example.com")
	a.confirm(c)
}
