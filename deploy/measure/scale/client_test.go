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
	// mostClients is how many there are of the larger installation, whatever the flag says.
	mostClients = 1_000_000
	// family is how many clients are linked with each other: a chain of generations, and below each of these its share of the others.
	family, generations = 1000, 20
)

// TestClientPages asks few and many clients the same, of whom each family is as large, as who holds users.clients, as the one
// that a family begins with, and as one whom that lets read what it reaches.
func TestClientPages(t *testing.T) {
	if *entities == 0 {
		t.Skip("it takes minutes: make scale")
	}
	t.Parallel()
	few, many := startClients(t, fewItems), startClients(t, min(*entities, mostClients))
	comparePages(t, few.installation, many.installation, few.questions(t), many.questions(t))
	for _, caller := range []string{"head", "grantee", "youngest"} {
		t.Log("as ", caller)
		a, b := *few.installation, *many.installation
		a.client, b.client = few.as[caller], many.as[caller]
		comparePages(t, &a, &b, few.own(t, &a, caller), many.own(t, &b, caller))
	}
}

// clientele is an installation of so many clients.
type clientele struct {
	*installation
	clients, head int // head: the first of the family in the middle
	as            map[string]*testkit.Client
}

func startClients(t *testing.T, n int) *clientele {
	t.Helper()
	m := &clientele{clients: n, head: n/2/family*family + 1, as: map[string]*testkit.Client{}}
	var db *pg.DB
	routes := func(opened *pg.DB) []rest.Route {
		db = opened
		return clients.New(service.Deps{DB: db}).Routes()
	}
	// In a family, number 1 to 20 are each other's parents, in their order, and each other number is below one of them.
	const member = "SELECT n, (n - 1) %% %[2]d + 1 AS i, n - (n - 1) %% %[2]d - 1 AS before FROM generate_series(1, %[1]d) n"
	const placed = "(SELECT n, i, before, CASE WHEN i <= %[3]d THEN i - 1 ELSE 1 + i %% %[3]d END AS parent FROM (" + member + ") m) p"
	filled := func(sql string) string { return fmt.Sprintf(sql, n, family, generations) }
	m.installation = serve(
		t,
		clients.Definition,
		routes,
		filled(`INSERT INTO client (email, first, last, billing_id, created_at)
			SELECT 'c' || n || '@example.com', 'Client', CASE WHEN n IN (7, 77, 777) THEN 'depot ' ELSE '' END || lpad(n::text, 9, '0'), n, '2026-01-01'::timestamptz + n * interval '1 second'
			FROM generate_series(1, %[1]d) n WHERE %[2]d + %[3]d > 0`),
		"INSERT INTO client_server_count SELECT id, id % 7 FROM client",
		"ALTER TABLE sub_link DISABLE TRIGGER USER",
		filled(
			"INSERT INTO sub_link (client_id, child_id, kind) SELECT before + parent, n, CASE WHEN n %% 2 = 0 THEN 'created' ELSE "+
				"'given' END FROM "+placed+" WHERE parent > 0 ORDER BY n",
		),
		"ALTER TABLE sub_link ENABLE TRIGGER USER",
		filled(
			"INSERT INTO client_reach SELECT before + a, n, 1, c.name, c.search FROM "+placed+" JOIN client c ON c.id = n CROSS JOIN LATERAL "+
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
	for name, id := range map[string]int{"head": m.head, "grantee": 1, "youngest": m.head + family - 1} {
		m.as[name] = testkit.NewClient(
			t,
			testkit.As(handler, &principal.Principal{Owner: principal.Owner{Type: principal.Client, ID: int64(id)}}),
		)
	}
	return m
}

// name is a client's.
func (m *clientele) name(id int) string { return fmt.Sprintf("Client %09d", id) }

func (m *clientele) questions(t *testing.T) []question {
	t.Helper()
	middle := m.head + family/2
	const page = "&per_page=100"
	return []question{
		{"view", fmt.Sprint("/client/", middle)},
		{"page 1", "/client?per_page=100"},
		{"deep inside", m.after(t, "/client?per_page=100", int64(middle), nil)},
		{"page 1 by name", "/client?sort=name" + page},
		{"deep inside by name", m.after(t, "/client?sort=name"+page, int64(middle), m.name(middle))},
		{"page 1 by email", "/client?sort=email" + page},
		{"the newest", "/client?sort=-created_at" + page},
		{"email", fmt.Sprintf("/client?email=C%d@example.com&per_page=100", middle)},
		{"billing_id", fmt.Sprintf("/client?billing_id=%d&per_page=100", middle)},
		{"name", fmt.Sprintf("/client?name=Client%%20%09d&per_page=100", middle)},
		{"q: three hits", "/client?q=depot" + page},
		{"q: no hit", "/client?q=xqz" + page},
		{"q: what all have", "/client?q=client" + page},
		{"q: two letters", "/client?q=cl" + page},
		{"sub links", fmt.Sprintf("/client/%d/sub?per_page=100", m.head)},
		{"parents", fmt.Sprintf("/client/%d/parent?per_page=100", middle)},
	}
}

// own are the questions of a client about those that it reaches.
func (m *clientele) own(t *testing.T, as *installation, caller string) []question {
	t.Helper()
	middle := m.head + family/2
	const page = "&per_page=100"
	all := []question{
		{"list", "/client?per_page=100"},
		{"list by name", "/client?sort=name" + page},
		{"q: no hit", "/client?q=xqz" + page},
		{"q: what all have", "/client?sort=name&q=client" + page},
		{"email", fmt.Sprintf("/client?email=c%d@example.com&per_page=100", middle)},
	}
	if caller == "youngest" { // which reaches nobody
		return append(
			all,
			question{"itself", fmt.Sprint("/client/", m.head+family-1)},
			question{"its parents", fmt.Sprintf("/client/%d/parent?per_page=100", m.head+family-1)},
		)
	}
	return append(all,
		question{"deep inside", as.after(t, "/client?per_page=100", int64(middle), nil)},
		question{"deep inside by name", as.after(t, "/client?sort=name"+page, int64(middle), m.name(middle))},
		question{"one that is 20 below", fmt.Sprint("/client/", m.head+generations-1)},
		question{"its sub links", fmt.Sprintf("/client/%d/sub?per_page=100", m.head+generations/2)})
}
