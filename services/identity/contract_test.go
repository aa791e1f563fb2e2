package identity_test

import (
	"testing"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/neighbours"
	"github.com/ironplane/ironplane/pkg/testkit/secondfactor"
	"github.com/ironplane/ironplane/services/identity/keys"
)

// The service answers its neighbours' questions as its double does.
func TestContract(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	a, _ := secondfactor.NewVerifiedApp(t, s.DB, c)
	id, own := newAdmin(t, c, "anna", `{}`)
	c.Do("PATCH", path("/admin/%d", id), `{"receive_copies": true}`).Want(200)
	secondfactor.NewVerifiedApp(t, s.DB, own)
	key := testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", `{"name": "another"}`).Want(200))
	neighbours.IdentityContract(t, s.Handler(), key.ID, "anna@example.com")
	a.Confirm(c)
}
