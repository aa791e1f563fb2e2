package scale

import (
	"fmt"
	"testing"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/rest"
	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity"
)

// TestKeyPages sends the same requests to installations with few and many API keys, and compares the pages that PostgreSQL
// reads.
func TestKeyPages(t *testing.T) {
	t.Parallel()
	keyCount := max(*entities, manyItems)
	few, many := startKeys(t, fewItems), startKeys(t, keyCount)
	comparePages(t, few, many, few.keyRequests(t, fewItems), many.keyRequests(t, keyCount))
}

// startKeys starts an installation with API keys. A tenth belongs to admins, the others to clients and integrations. Each
// account has five keys on average.
func startKeys(t *testing.T, keys int) *installation {
	t.Helper()
	accounts := keys / 5
	return serve(
		t,
		identity.Definition,
		func(db *pg.DB) []rest.Route {
			return identity.New(service.Deps{DB: db, Redis: testkit.Redis(t)}).Routes()
		},
		fmt.Sprintf(
			"INSERT INTO admin (username, permissions) SELECT 'admin ' || n, '{network.entities write}' FROM generate_series(1, %d) n",
			accounts,
		),
		fmt.Sprintf(
			"INSERT INTO ref SELECT type, n, type || ' ' || n, 1 FROM generate_series(1, %d) n, unnest('{client,integration}'::text[]) type",
			accounts,
		),
		fmt.Sprintf(`INSERT INTO api_key (name, hash, owner_type, owner_id)
			SELECT 'key ' || CASE WHEN n IN (7, 77, 777) THEN 'depot ' ELSE '' END || lpad(n::text, 9, '0'), sha256(n::text::bytea), (ARRAY['admin', 'client', 'integration'])[CASE WHEN n %% 10 = 0 THEN 1 ELSE 2 + n %% 2 END], 1 + n %% %d
			FROM generate_series(1, %d) n`, accounts, keys),
		"VACUUM (ANALYZE) admin",
		"VACUUM (ANALYZE) api_key",
		"VACUUM (ANALYZE) ref",
	)
}

func (i *installation) keyRequests(t *testing.T, keys int) []request {
	t.Helper()
	middle := keys / 2
	name := fmt.Sprintf("key %09d", middle)
	const page = "&per_page=100"
	return []request{
		{"page 1", "/auth/key?per_page=100"},
		{"deep inside", i.pageAfter(t, "/auth/key?per_page=100", int64(middle), nil)},
		{"page 1 by name", "/auth/key?sort=name" + page},
		{"deep inside by name", i.pageAfter(t, "/auth/key?sort=name"+page, int64(middle), name)},
		{"view", fmt.Sprint("/auth/key/", middle)},
		{"an admin's", "/auth/key?owner=/admin/11" + page},
		{"a client's", "/auth/key?owner=/client/13" + page},
		{"a client's, by id", "/auth/key?owner_type=client&owner_id=13" + page},
		{"clients'", "/auth/key?owner_type=client" + page},
		{"admins', by name", "/auth/key?owner_type=admin&sort=name" + page},
		{"clients', deep inside", i.pageAfter(t, "/auth/key?owner_type=client&per_page=100", int64(middle), nil)},
		{"name", "/auth/key?name=" + "key%20" + name[4:] + page},
		{"q: three hits", "/auth/key?q=depot" + page},
		{"q: no hit", "/auth/key?q=xqz" + page},
		{"q: in all names", "/auth/key?q=key" + page},
		{"q: two letters", "/auth/key?q=ke" + page},
		{"admins", "/admin?per_page=100"},
		{"admins by username", "/admin?sort=username" + page},
	}
}
