package identity_test

import (
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity/keys"
)

// A request whose key is deleted before the request writes changes nothing. It gets no stored response for its Idempotency-Key
// either.
func TestDeletedKeyWritesNothing(t *testing.T) {
	t.Parallel()
	s, c := newFixture(t)
	db := s.DB
	other, _ := newAdmin(t, c, "other", `{}`)
	kept := []string{"Idempotency-Key", "kept"}
	for name, change := range map[string]struct {
		method, path string
		body         any
		headers      []string
	}{
		"a key for oneself": {"POST", "/auth/key", `{"name": "successor"}`, nil},
		"a key for somebody else": {
			"POST", "/auth/key", map[string]any{"name": "successor", "owner": map[string]any{"url": path("/admin/%d", other)}}, nil,
		},
		"an earlier answer":         {"POST", "/auth/key", `{"name": "kept"}`, kept},
		"an account":                {"POST", "/admin", `{"email": "successor@example.com", "password": ""}`, nil},
		"an earlier answer of that": {"POST", "/admin", `{"email": "kept@example.com", "password": ""}`, kept},
		"an account's edit":         {"PATCH", path("/admin/%d", other), `{"email": "successor@example.com"}`, nil},
		"permissions":               {"PATCH", path("/admin/%d/permission", other), usersAdmins, nil},
		"an account's end":          {"DELETE", path("/admin/%d", other), nil, nil},
	} {
		eve := testkit.Decode[keys.APIKey](c.Do("POST", "/auth/key", `{"name": "eve"}`).Want(200))
		caller := c.WithKey(eve.Key)
		if change.headers != nil {
			change.headers = []string{"Idempotency-Key", "kept " + name}
			caller.Do(change.method, change.path, change.body, change.headers...).Want(200)
		}
		before := accounts(t, db)
		unlock := testkit.HoldLock(t, db, func(tx *pg.Tx) error { return tx.Lock(t.Context(), "accounts", 0) })
		defer unlock()
		deleted, answered := make(chan *testkit.Response, 1), make(chan *testkit.Response, 1)
		go func() { deleted <- c.Do("DELETE", path("/auth/key/%d", eve.ID), nil) }()
		testkit.AwaitLocked(t, db, 1)
		go func() { answered <- caller.Do(change.method, change.path, change.body, change.headers...) }()
		testkit.AwaitLocked(t, db, 2)
		unlock()
		(<-deleted).Want(200)
		response := (<-answered).Want(401) // from the service, or from the gateway
		if response.Header.Get("WWW-Authenticate") != "Bearer" ||
			!strings.HasPrefix(testkit.Decode[problem.Problem](response).Detail, "The API key is not valid") {
			t.Errorf("%s: got %s, want a Bearer challenge and that the API key is not valid", name, response.Text)
		}
		if after := accounts(t, db); after != before-1 {
			t.Errorf("%s: got %d accounts and keys, want %d", name, after, before-1)
		}
	}
}

// accounts counts accounts and keys.
func accounts(t *testing.T, db *pg.DB) (n int) {
	t.Helper()
	if err := db.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM admin) + (SELECT count(*) FROM api_key)").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
