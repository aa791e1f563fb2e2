package product_test

import (
	"fmt"
	"testing"

	"github.com/ironplane/ironplane/deploy/internal/product"
	"github.com/ironplane/ironplane/deploy/internal/product/producttest"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/clients"
	"github.com/ironplane/ironplane/services/network"
	"github.com/ironplane/ironplane/services/system"
)

// A dry run of a deletion is refused for the same reason as the deletion, also if another service has the reason. It takes no
// lease, so that others may refer to the item.
func TestDryRunOfDeletion(t *testing.T) { both(t, testDryRunOfDeletion) }

func testDryRunOfDeletion(t *testing.T, p *product.Product, c *testkit.Client) {
	group := c.Do("POST", "/group", `{"name": "Dry"}`).Want(200).ID()
	owner := c.Do("POST", "/client", order("owner@dry.example.com")).Want(200).ID()
	other := c.Do("POST", "/client", order("other@dry.example.com")).Want(200).ID()
	shop := c.Do("POST", "/integration", `{"name": "Dry shop"}`).Want(200).ID()
	customer := c.Do("POST", "/client", order("customer@dry.example.com", "integration", shop)).Want(200).ID()
	entity := c.Do("POST", "/entity", fmt.Sprintf(`{"group": %d, "address": "192.0.2.1", "owner": {"id": %d}}`, group, owner)).Want(200).ID()
	free := c.Do("POST", "/entity", fmt.Sprintf(`{"group": %d, "address": "192.0.2.2"}`, group)).Want(200).ID()

	for _, item := range []string{
		path("/group/%d", group),
		path("/entity/%d", entity),
		path("/client/%d", owner),
		fmt.Sprintf("/client/%d,%d", owner, other),
		path("/integration/%d", shop),
		"/admin/1",
	} {
		dry := testkit.Decode[problem.Problem](c.Do("DELETE", item+"?dry_run=true", nil).Want(409))
		after := testkit.Decode[problem.Problem](c.Do("DELETE", item, nil).Want(409))
		if dry.RequestID = after.RequestID; dry.Detail != after.Detail {
			t.Errorf("DELETE %s: got %q in a dry run, want %q", item, dry.Detail, after.Detail)
		}
	}

	countLeases := func() (leases int) {
		for database, sql := range map[string]string{
			clients.Name: "SELECT count(*) FROM closing", system.Name: "SELECT count(*) FROM closing",
			network.Name: "SELECT count(*) FROM ref WHERE type = 'client' AND closing IS NOT NULL",
		} {
			leases += countRows(t, p.Databases[database], sql)
		}
		return leases
	}
	leased := countLeases()
	for _, item := range []string{
		path("/client/%d", other), path("/client/%d", customer), path("/entity/%d", free),
	} {
		c.Do("DELETE", item+"?dry_run=1", nil).Want(200)
		c.Do("GET", item, nil).Want(200)
	}
	c.Do("DELETE", path("/integration/%d", shop)+"?detach=true&dry_run=true", nil).Want(200)
	producttest.AwaitLog(t, p)
	if got := countLeases(); got != leased {
		t.Errorf("got %d leases after dry runs, want %d as before", got, leased)
	}
	if shown := testkit.Decode[map[string]any](c.Do("GET", path("/integration/%d", shop), nil).Want(200)); shown["detaching"] != false {
		t.Errorf("got %v, want an integration that is not being deleted", shown)
	}
	c.Do("PATCH", path("/entity/%d", free), fmt.Sprintf(`{"owner": {"id": %d}}`, other)).Want(200)

	_, unprivileged := newAdmin(t, c, "dry", `{}`)
	refused := unprivileged.Do("DELETE", path("/group/%d", group)+"?dry_run=true", nil)
	refused.WantDetail(problem.Forbidden, "The key lacks network.groups write.")
	c.Do("DELETE", "/group/999999999?dry_run=true", nil).Want(404)
	c.Do("DELETE", path("/group/%d", group)+"?dry_run=true", nil, "If-Match", `"999"`).Want(412)
	for method, target := range map[string]string{"PATCH": path("/group/%d", group), "POST": "/group", "GET": "/group"} {
		c.Do(method, target+"?dry_run=true", `{"name": "Wet"}`).Want(400)
	}
}

func countRows(t *testing.T, db *pg.DB, sql string) (count int) {
	t.Helper()
	if err := db.QueryRow(t.Context(), sql).Scan(&count); err != nil {
		t.Fatal(err)
	}
	return count
}
