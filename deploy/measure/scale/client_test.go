package scale

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/ironplane/ironplane/pkg/auth/principal"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/clients"
)

const (
	// maxClients limits the clients of the larger installation.
	maxClients = 1_000_000
	// familySize is the number of linked clients. The first ones are a chain of generations, and the others are spread below these.
	familySize, generations = 1000, 20
)

// TestClientPages sends the same requests to installations with few and many clients, but equally large families, and compares
// the pages that PostgreSQL reads. The callers are an admin, the head of a family, the head's grantee, and the youngest client.
func TestClientPages(t *testing.T) {
	if *entities == 0 {
		t.Skip("make scale runs this test")
	}
	t.Parallel()
	few, many := startClients(t, fewItems), startClients(t, min(*entities, maxClients))
	comparePages(t, few.installation, many.installation, few.requests(t), many.requests(t))
	for _, caller := range []string{"head", "grantee", "youngest"} {
		t.Log("as ", caller)
		a, b := *few.installation, *many.installation
		a.client, b.client = few.byCaller[caller], many.byCaller[caller]
		comparePages(t, &a, &b, few.ownRequests(t, &a, caller), many.ownRequests(t, &b, caller))
	}
}

// clientInstallation is an installation with families of clients.
type clientInstallation struct {
	*installation
	clients, head int // head: the first of the family in the middle
	byCaller      map[string]*testkit.Client
}

func startClients(t *testing.T, n int) *clientInstallation {
	t.Helper()
	m := &clientInstallation{clients: n, head: n/2/familySize*familySize + 1, byCaller: map[string]*testkit.Client{}}
	var db *pg.DB
	routes := func(opened *pg.DB) []rest.Route {
		db = opened
		return clients.New(service.Deps{DB: db}).Routes()
	}
	// In a family, each of the numbers 1 to 20 is the parent of the next one, and each other number is below one of them.
	const member = "SELECT n, (n - 1) %% %[2]d + 1 AS i, n - (n - 1) %% %[2]d - 1 AS before FROM generate_series(1, %[1]d) n"
	const withParents = "(SELECT n, i, before, CASE WHEN i <= %[3]d THEN i - 1 ELSE 1 + i %% %[3]d END AS parent FROM (" + member + ") m) p"
	format := func(sql string) string { return fmt.Sprintf(sql, n, familySize, generations) }
	m.installation = serve(
		t,
		clients.Definition,
		routes,
		format(`INSERT INTO client (email, first, last, billing_id, created_at)
			SELECT 'c' || n || '@example.com', 'Client', CASE WHEN n IN (7, 77, 777) THEN 'depot ' ELSE '' END || lpad(n::text, 9, '0'), n, '2026-01-01'::timestamptz + n * interval '1 second'
			FROM generate_series(1, %[1]d) n WHERE %[2]d + %[3]d > 0`),
		"INSERT INTO client_server_count SELECT id, id % 7 FROM client",
		"ALTER TABLE sub_link DISABLE TRIGGER USER",
		format(
			"INSERT INTO sub_link (client_id, child_id, kind) SELECT before + parent, n, CASE WHEN n %% 2 = 0 THEN 'created' ELSE "+
				"'given' END FROM "+withParents+" WHERE parent > 0 ORDER BY n",
		),
		"ALTER TABLE sub_link ENABLE TRIGGER USER",
		format(
			"INSERT INTO client_reach SELECT before + a, n, 1, c.name, c.search FROM "+withParents+" JOIN client c ON c.id = n CROSS JOIN LATERAL "+
				"generate_series(1, parent) a ORDER BY n, a",
		),
		fmt.Sprintf("INSERT INTO super_link (client_id, grantee_id, given) VALUES (%d, %d, true)", m.head, 1),
		"VACUUM (ANALYZE) client",
		"VACUUM (ANALYZE) sub_link",
		"VACUUM (ANALYZE) super_link",
		"VACUUM (ANALYZE) client_reach",
		"VACUUM (ANALYZE) client_server_count",
	)
	handler := rest.NewHandler(clients.Name, db, slog.New(slog.NewTextHandler(t.Output(), nil)), clients.New(service.Deps{DB: db}).Routes())
	for name, id := range map[string]int{"head": m.head, "grantee": 1, "youngest": m.head + familySize - 1} {
		m.byCaller[name] = testkit.NewClient(
			t,
			testkit.As(handler, &principal.Principal{Owner: principal.Owner{Type: principal.Client, ID: int64(id)}}),
		)
	}
	return m
}

// name returns a client's name.
func (m *clientInstallation) name(id int) string { return fmt.Sprintf("Client %09d", id) }

func (m *clientInstallation) requests(t *testing.T) []request {
	t.Helper()
	middle := m.head + familySize/2
	const page = "&per_page=100"
	return []request{
		{"view", fmt.Sprint("/client/", middle)},
		{"page 1", "/client?per_page=100"},
		{"deep inside", m.pageAfter(t, "/client?per_page=100", int64(middle), nil)},
		{"page 1 by name", "/client?sort=name" + page},
		{"deep inside by name", m.pageAfter(t, "/client?sort=name"+page, int64(middle), m.name(middle))},
		{"page 1 by email", "/client?sort=email" + page},
		{"the newest", "/client?sort=-created_at" + page},
		{"email", fmt.Sprintf("/client?email=C%d@example.com&per_page=100", middle)},
		{"billing_id", fmt.Sprintf("/client?billing_id=%d&per_page=100", middle)},
		{"name", fmt.Sprintf("/client?name=Client%%20%09d&per_page=100", middle)},
		{"q: three hits", "/client?q=depot" + page},
		{"q: no hit", "/client?q=xqz" + page},
		{"q: in all names", "/client?q=client" + page},
		{"q: two letters", "/client?q=cl" + page},
		{"sub links", fmt.Sprintf("/client/%d/sub?per_page=100", m.head)},
		{"parents", fmt.Sprintf("/client/%d/parent?per_page=100", middle)},
	}
}

// ownRequests returns the requests of a client about those that it may see.
func (m *clientInstallation) ownRequests(t *testing.T, byCaller *installation, caller string) []request {
	t.Helper()
	middle := m.head + familySize/2
	const page = "&per_page=100"
	all := []request{
		{"list", "/client?per_page=100"},
		{"list by name", "/client?sort=name" + page},
		{"q: no hit", "/client?q=xqz" + page},
		{"q: in all names", "/client?sort=name&q=client" + page},
		{"email", fmt.Sprintf("/client?email=c%d@example.com&per_page=100", middle)},
	}
	if caller == "youngest" { // it has no clients below
		return append(
			all,
			request{"itself", fmt.Sprint("/client/", m.head+familySize-1)},
			request{"its parents", fmt.Sprintf("/client/%d/parent?per_page=100", m.head+familySize-1)},
		)
	}
	return append(all,
		request{"deep inside", byCaller.pageAfter(t, "/client?per_page=100", int64(middle), nil)},
		request{"deep inside by name", byCaller.pageAfter(t, "/client?sort=name"+page, int64(middle), m.name(middle))},
		request{"a client 20 levels below", fmt.Sprint("/client/", m.head+generations-1)},
		request{"its sub links", fmt.Sprintf("/client/%d/sub?per_page=100", m.head+generations/2)})
}
