package clients_test

import (
	"fmt"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/neighbours"
	"github.com/ironplane/ironplane/services/clients"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// stand is the clients service between doubles. Its Client is an admin's who holds every permission.
type stand struct {
	*testkit.RunningService

	*neighbours.All

	t testing.TB
}

func newStand(t testing.TB) *stand {
	t.Helper()
	s, all := neighbours.Run(t, clients.Definition, testkit.ServiceOptions{})
	return &stand{s, all, t}
}

// order is what a billing system or a reseller sends for a customer.
func order(email string, more ...any) map[string]any {
	body := map[string]any{"email": email, "first": "Ben", "last": "Miller"}
	for i := 0; i < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	return body
}

// make makes a client and returns its id and its path.
func (s *stand) make(email string, more ...any) (id int64, at string) {
	s.t.Helper()
	id = s.Do("POST", "/client", order(email, more...)).Want(200).ID()
	return id, path("/client/%d", id)
}

func path(format string, args ...any) string { return fmt.Sprintf(format, args...) }

func TestContract(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	id, _ := s.make("ben@example.com", "verify", map[string]any{"require": true})
	want := credentials.Account{
		ID: id, Name: "Ben Miller", First: "Ben", Last: "Miller", Email: "ben@example.com", Version: 1, Require: true,
	}
	if err := s.DB.QueryRow(t.Context(), "SELECT credentials FROM client WHERE id = $1", id).Scan(&want.Version); err != nil {
		t.Fatal(err)
	}
	neighbours.ClientsContract(t, s.Handler(), s.Identity.Double, want)
	gone, at := s.make("ann@example.com")
	s.Do("DELETE", at, nil).Want(200)
	if !s.Network.Closed("client", gone) || !s.PXE.Closed("client", gone) {
		t.Error("a client is deleted without its users' consent")
	}
}
