package clients_test

import (
	"fmt"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/credentials"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/pkg/testkit/neighbours"
	"github.com/ironplane/ironplane/services/clients"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// testService is the clients service between doubles of its neighbours. The embedded client is an admin with every permission.
type testService struct {
	*testkit.RunningService

	*neighbours.All

	t testing.TB
}

func newTestService(t testing.TB) *testService {
	t.Helper()
	s, all := neighbours.Run(t, clients.Definition, testkit.ServiceOptions{})
	return &testService{s, all, t}
}

// asClient returns a caller with a key of the client.
func (s *testService) asClient(id int64) *testkit.Client {
	return s.As(&principal.Principal{KeyID: 1000 + id, Owner: principal.Owner{Type: principal.Client, ID: id}, Name: "a client"})
}

// asIntegration returns a caller with a key of an integration that may write clients.
func (s *testService) asIntegration(id int64) *testkit.Client {
	return s.As(&principal.Principal{
		KeyID: 2000 + id, Owner: principal.Owner{Type: principal.Integration, ID: id}, Name: "an integration",
		Grants: principal.Grant(permission.UsersClients, permission.Read) | principal.Grant(permission.UsersClients, permission.Write),
	})
}

// orderBody returns the body that a billing system or a reseller sends for a customer.
func orderBody(email string, more ...any) map[string]any {
	body := map[string]any{"email": email, "first": "Ben", "last": "Miller"}
	for i := 0; i < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	return body
}

// createClient creates a client and returns its id and its path.
func (s *testService) createClient(email string, more ...any) (id int64, at string) {
	s.t.Helper()
	id = s.Do("POST", "/client", orderBody(email, more...)).Want(200).ID()
	return id, path("/client/%d", id)
}

func path(format string, args ...any) string { return fmt.Sprintf(format, args...) }

func TestContract(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	id, _ := s.createClient("ben@example.com", "verify", map[string]any{"require": true})
	want := credentials.Account{
		ID: id, Name: "Ben Miller", First: "Ben", Last: "Miller", Email: "ben@example.com", Version: 1, Require: true,
	}
	if err := s.DB.QueryRow(t.Context(), "SELECT credentials FROM client WHERE id = $1", id).Scan(&want.Version); err != nil {
		t.Fatal(err)
	}
	above, reseller := s.createClient("eve@example.com")
	link := s.Do("POST", reseller+"/sub", map[string]any{"client_id": id}).Want(200).ID()
	neighbours.ClientsContract(t, s.Handler(), s.Identity.Double, want, above, link)
	deleted, at := s.createClient("ann@example.com")
	s.Do("DELETE", at, nil).Want(200)
	if !s.Network.Closed("client", deleted) || !s.PXE.Closed("client", deleted) {
		t.Errorf("got closed by network %t and by pxe %t, want both", s.Network.Closed("client", deleted), s.PXE.Closed("client", deleted))
	}
}

// records returns the members before and after each change of a kind, the last change first.
func (s *testService) records(kind string, action pg.Action) (earlier, later []map[string]any) {
	s.t.Helper()
	rows, err := s.DB.Query(
		s.t.Context(),
		"SELECT before, after FROM change WHERE type = $1 ORDER BY at DESC, seq DESC",
		kind+"."+string(action),
	)
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var before, after map[string]any
		if err := rows.Scan(&before, &after); err != nil {
			s.t.Fatal(err)
		}
		earlier, later = append(earlier, before), append(later, after)
	}
	return earlier, later
}

// Records have no counts. A count changes with an event of another service, without a record, so records of one client would
// contradict one another.
func TestRecordsHaveNoCounts(t *testing.T) {
	t.Parallel()
	s := newTestService(t)
	id, at := s.createClient("ben@example.com")
	s.Network.SetServers(id, 2)
	testkit.Eventually(t, "the servers are counted", func() bool {
		return testkit.Decode[clients.ListedClient](s.Do("GET", at, nil).Want(200)).Servers == 2
	})
	s.Do("PATCH", at, `{"first": "Benjamin"}`).Want(200)
	s.Do("DELETE", at, nil).Want(200)
	for action, both := range map[pg.Action]bool{pg.Created: false, pg.Edited: true, pg.Deleted: false} {
		before, after := s.records("client", action)
		if len(before) != 1 {
			t.Fatalf("records of client.%s: got %d, want 1", action, len(before))
		}
		for _, record := range []map[string]any{before[0], after[0]} {
			if record == nil && both {
				t.Errorf("client.%s: got a record with one side, want both", action)
			}
			if count, exists := record["serversCount"]; exists {
				t.Errorf("client.%s: got serversCount %v, want none", action, count)
			}
			if name := record["name"]; record != nil && name == nil {
				t.Errorf("client.%s: got %v, want a name", action, record)
			}
		}
	}
}
