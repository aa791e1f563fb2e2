package network_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/network"
)

func TestIPGroup(t *testing.T) {
	t.Parallel()
	c := newClient(t)

	group := testkit.Decode[network.IPGroup](c.Do("POST", "/group", `{"name": "Berlin", "billing_id": "BER", "reserved": true}`).Want(200))
	if group.Name != "Berlin" || *group.BillingID != "BER" || !group.Reserved || group.EntitiesCount != 0 {
		t.Fatalf("got %+v, want a reserved and empty Berlin with the billing id BER", group)
	}
	c.Do("POST", "/group", `{"name": "Berlin"}`).WantErrors("/name", "taken")
	c.Do("POST", "/group", `{"name": "Bern", "billing_id": "BER"}`).WantErrors("/billing_id", "taken")
	c.Do("POST", "/group", `{"name": "Bern", "billing_id": ""}`).Want(200) // no billing id, twice
	c.Do("POST", "/group", `{"name": "Bonn", "billing_id": null}`).Want(200)
	c.Do("PATCH", "/group/1", `{"name": null, "reserved": "no"}`).WantErrors("/name", "required", "/reserved", "type")
	c.Do("PATCH", "/group/1", `{"name": "Bonn"}`).WantErrors("/name", "taken")

	c.Do("POST", "/group", "name,reserved\nBari ,1\nBasel,FALSE\nBath,\n1000,True\n", "Content-Type", "text/csv").Want(200)
	for name, reserved := range map[string]bool{"Bari": true, "Basel": false, "Bath": false, "1000": true} {
		if found := testkit.Decode[[]network.IPGroup](
			c.Do("GET", "/group?q="+name, nil).Want(200),
		); len(found) != 1 ||
			found[0].Reserved != reserved {
			t.Errorf("%s: got %+v, want one group with reserved %t", name, found, reserved)
		}
	}
	c.Do("POST", "/group", "name,reserved\nBaden,yes\n", "Content-Type", "text/csv").WantErrors("/2/reserved", "type")

	edited := testkit.Decode[network.IPGroup](c.Do("PATCH", "/group/1", `{"reserved": false}`).Want(200))
	if edited.Name != "Berlin" || *edited.BillingID != "BER" || edited.Reserved {
		t.Fatalf("got %+v, want Berlin with the billing id BER, not reserved", edited)
	}
}

func TestIPGroupCounts(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	group := c.Do("POST", "/group", `{"name": "Berlin"}`).ID()
	for _, e := range []string{
		`{"group": 1, "address": "192.0.2.1", "owner": {"id": 5, "server": {"id": 9}}}`,
		`{"group": 1, "address": "192.0.2.2", "owner": {"id": 5, "server": {"id": 9}}}`,
		`{"group": 1, "address": "192.0.2.3", "owner": {"id": 5, "server": {"id": 10}}}`,
		`{"group": 1, "address": "192.0.2.4", "owner": {"id": 5}}`,
		`{"group": 1, "address": "192.0.2.5"}`,
	} {
		c.Do("POST", "/entity", e).Want(200)
	}
	got := testkit.Decode[network.IPGroup](c.Do("GET", "/group/1", nil).Want(200))
	if got.EntitiesCount != 5 || got.Entities.Count != 5 || got.Servers.Count != 2 || got.Servers.Inventory != 0 {
		t.Fatalf("group %d: got %+v, want 5 entities and 2 servers, none of them in the inventory", group, got)
	}
	if first := testkit.Decode[network.IPEntity](c.Do("GET", "/entity/1", nil).Want(200)); first.SiblingsCount != 1 {
		t.Fatalf("entity 1: got %d siblings, want 1", first.SiblingsCount)
	}
	c.Do("DELETE", "/group/1", nil).
		WantDetail(problem.Conflict, "IP group 1 is in use by IP entity 1 (192.0.2.1) and 4 more. Delete its entities first.")
}

// When a group is deleted while an entity is created in it, one of the two is refused. No entity is left without a group.
func TestIPGroupDeletedWhileUsed(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	for round := range 20 {
		id := c.Do("POST", "/group", map[string]any{"name": fmt.Sprint("round ", round)}).ID()
		var deleted, created *testkit.Response
		var both sync.WaitGroup
		both.Go(func() { deleted = c.Do("DELETE", fmt.Sprint("/group/", id), nil) })
		both.Go(func() { created = c.Do("POST", "/entity", map[string]any{"group": id, "address": "10.0.0.1"}) })
		both.Wait()
		switch {
		case deleted.Status == 200 && created.Status == 422:
		case deleted.Status == 409 && created.Status == 200:
		default:
			t.Fatalf("got delete %d %s and create %d %s, want only one to succeed",
				deleted.Status, deleted.Text, created.Status, created.Text)
		}
	}
}
