package product_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity"
)

// Two limits of an account hold for simultaneous requests: mails about the account in an hour, and links to choose a
// password.
func TestCountedAtOnce(t *testing.T) { producttest.InOneProcess(t, testCountedAtOnce) }

func testCountedAtOnce(t *testing.T, p *product.Product, c *testkit.Client) {
	db := p.Databases[identity.Name]
	id := newPerson(t, c, "admin", "ann@example.com")
	testkit.Execute(t, db, "INSERT INTO account_mail (owner_type, owner_id) SELECT 'admin', $1 FROM generate_series(1, 9)", id)
	count := func(sql string) (n int) {
		t.Helper()
		if err := db.QueryRow(t.Context(), sql, id).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	const many = 4
	holdTable := func(name string) (release func()) {
		return testkit.HoldLock(t, db, func(tx *pg.Tx) error {
			_, err := tx.Exec(t.Context(), "LOCK TABLE "+name+" IN SHARE MODE")
			return err
		})
	}

	release := holdTable("account_mail")
	var all sync.WaitGroup
	for n := range many {
		all.Go(func() { // from an address each, that it was not signed in from before
			r := httptest.NewRequestWithContext(
				t.Context(),
				http.MethodPost,
				"/auth/key",
				strings.NewReader(loginOf("admin", "ann@example.com", password)),
			)
			r.Header.Set("Content-Type", "application/json")
			r.RemoteAddr = path("192.0.2.%d:1", n+1)
			w := httptest.NewRecorder()
			p.Gateway.ServeHTTP(w, r)
			if w.Code != http.StatusOK {
				t.Errorf("got %d %s, want %d", w.Code, w.Body, http.StatusOK)
			}
		})
	}
	testkit.AwaitLocked(t, db, many) // all are about to be counted
	release()
	all.Wait()
	if n := count("SELECT count(*) FROM account_mail WHERE owner_id = $1"); n != 10 {
		t.Errorf("got %d counted mails, want 10", n)
	}

	for range 4 {
		testkit.Execute(
			t,
			db,
			"INSERT INTO password_reset (owner_type, owner_id, hash, expires_at) VALUES ('admin', $1, sha256('x'), now() + interval '1 hour')",
			id,
		)
	}
	release = holdTable("message")
	for range many {
		c.WithKey("").Do("POST", "/auth/password-reset", `{"type": "admin", "email": "ann@example.com"}`).Want(200)
	}
	testkit.AwaitLocked(t, db, many) // all are about to be mailed, or counted
	release()
	testkit.Eventually(t, "all jobs are done", func() bool {
		return count("SELECT count(*) FROM river_job WHERE kind = 'password-reset' AND state = 'completed' AND $1 > 0") == many
	})
	if n := count("SELECT count(*) FROM password_reset WHERE owner_id = $1 AND hash IS NOT NULL"); n != 5 {
		t.Errorf("got %d mailed links, want 5", n)
	}
}
