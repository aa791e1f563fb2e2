package product_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/identity"
	"github.com/ironplane/ironplane/services/identity/admin"
	"github.com/ironplane/ironplane/services/system"
)

// During maintenance reads succeed, changes are refused, and the services' jobs wait.
func TestMaintenance(t *testing.T) { both(t, testMaintenance) }

func testMaintenance(t *testing.T, p *product.Product, c *testkit.Client) {
	id := c.Do("POST", "/group", `{"name": "Berlin"}`).Want(200).ID()
	item := path("/group/%d", id)
	producttest.AwaitLog(t, p)
	if health := c.Do("GET", "/-/health", nil).Want(200); health.Text != `{"status":"ok"}`+"\n" {
		t.Errorf("got the health %s, want ok", health.Text)
	}

	if err := p.Maintenance.Begin("The database moves until 14:00."); err != nil {
		t.Fatal(err)
	}
	for _, change := range []*testkit.Response{
		c.Do("POST", "/group", `{"name": "Bonn"}`), c.Do("PATCH", item, `{"name": "Bonn"}`), c.Do("DELETE", item, nil),
		c.Do("POST", "/auth/key", `{"name": "another"}`), c.Do("DELETE", "/auth/key/1", nil), c.Do("GET", "/auth/sso", nil),
	} {
		change.WantDetail(problem.Unavailable,
			"The installation is in maintenance and accepts no changes. Reason: The database moves until 14:00.")
		if change.Header.Get("Retry-After") != "30" {
			t.Errorf("got Retry-After %q, want 30", change.Header.Get("Retry-After"))
		}
	}
	for _, read := range []string{item, "/group", "/log", "/auth/key/current", "/-/openapi.json"} {
		c.Do("GET", read, nil).Want(200)
	}
	if health := c.Do("GET", "/-/health", nil).
		Want(200); health.Text != `{"status":"maintenance","detail":"The database moves until 14:00."}`+"\n" {
		t.Errorf("got the health %s, want maintenance with its detail", health.Text)
	}

	// Changes that bypass the gateway are logged only after the maintenance.
	logged := func() (n int) {
		if err := p.Databases[system.Name].QueryRow(t.Context(), "SELECT count(*) FROM log WHERE type = 'auth.key.created'").
			Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for deadline := time.Now().Add(soon); ; {
		before := logged()
		if _, _, err := admin.CreateKey(t.Context(), p.Databases[identity.Name]); err != nil {
			t.Fatal(err)
		}
		if time.Sleep(300 * time.Millisecond); logged() == before { // far longer than logging takes otherwise
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("got a log that still grows, want it unchanged during maintenance")
		}
	}

	if err := p.Maintenance.End(); err != nil {
		t.Fatal(err)
	}
	c.Do("PATCH", item, `{"name": "Bonn"}`).Want(200)
	producttest.AwaitLog(t, p)
	if log := c.Do("GET", "/log", nil).Want(200).Text; !strings.Contains(log, "Bonn") {
		t.Errorf("got the log %s, want Bonn in it", log)
	}
	if health := c.Do("GET", "/-/health", nil).Want(200); health.Text != `{"status":"ok"}`+"\n" {
		t.Errorf("got the health %s, want ok", health.Text)
	}
}
