package identity_test

import (
	"testing"

	"github.com/ironplane/ironplane/pkg/mail"
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
	for username, permissions := range map[string]string{ // they get no mail about changed templates
		"reader":   `{"users": {"admins": {"read": true}}}`,
		"disabled": `{"users": {"admins": {"read": true, "write": true}}}`,
	} {
		other, _ := newAdmin(t, c, username, permissions)
		c.Do("PATCH", path("/admin/%d", other), map[string]any{"disabled": username == "disabled"}).Want(200)
	}
	writer, _ := newAdmin(t, c, "writer", `{"users": {"admins": {"read": true, "write": true}}}`)
	secondfactor.NewVerifiedApp(t, s.DB, own)
	key := testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", `{"name": "another"}`).Want(200))
	neighbours.IdentityContract(
		t,
		s.Handler(),
		key.ID,
		mail.AdminWriter{ID: writer, Name: "writer", Email: "writer@example.com"},
		"anna@example.com",
	)
	a.Confirm(c)
}
